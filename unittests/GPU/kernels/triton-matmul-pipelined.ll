; dynamic shared memory: 8192
target datalayout = "e-p3:32:32-p4:32:32-p5:32:32-p6:32:32-p7:32:32-p101:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"

@global_smem = external addrspace(3) global [0 x i8], align 16

; Function Attrs: nounwind
define ptx_kernel void @matmul(ptr addrspace(1) %0, ptr addrspace(1) %1, ptr addrspace(1) %2, i32 %3, i32 %4, i32 %5, ptr addrspace(1) nofree readnone captures(none) %6, ptr addrspace(1) nofree readnone captures(none) %7) local_unnamed_addr #0 !dbg !4 {
  %9 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !14
  %10 = shl i32 %9, 5, !dbg !14
  %11 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !15
  %12 = lshr i32 %11, 2, !dbg !15
  %13 = and i32 %12, 31, !dbg !15
  %14 = and i32 %11, 3, !dbg !15
  %15 = shl nuw nsw i32 %14, 3, !dbg !15
  %16 = or disjoint i32 %13, %10, !dbg !14
  %17 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !16
  %18 = shl nuw nsw i32 %17, 5, !dbg !16
  %19 = or disjoint i32 %15, %18, !dbg !16
  %20 = mul i32 %5, %16, !dbg !17
  %21 = sext i32 %20 to i64, !dbg !18
  %22 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %21, !dbg !18
  %23 = zext nneg i32 %15 to i64, !dbg !18
  %24 = getelementptr [2 x i8], ptr addrspace(1) %22, i64 %23, !dbg !18
  %25 = mul i32 %4, %13, !dbg !19
  %26 = sext i32 %25 to i64, !dbg !20
  %27 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %26, !dbg !20
  %28 = zext nneg i32 %19 to i64, !dbg !20
  %29 = getelementptr [2 x i8], ptr addrspace(1) %27, i64 %28, !dbg !20
  %30 = icmp slt i32 %16, %3, !dbg !21
  %31 = icmp slt i32 %19, %4, !dbg !22
  %32 = shl i32 %4, 5, !dbg !23
  %33 = icmp sgt i32 %5, 0, !dbg !24
  %34 = icmp slt i32 %15, %5, !dbg !25
  %35 = and i1 %34, %33, !dbg !24
  %36 = and i1 %30, %35, !dbg !24
  %37 = shl nuw nsw i32 %11, 4, !dbg !26
  %38 = and i32 %37, 2032, !dbg !26
  %39 = shl nuw nsw i32 %11, 1, !dbg !26
  %40 = and i32 %39, 48, !dbg !26
  %41 = xor i32 %38, %40, !dbg !26
  %42 = getelementptr i8, ptr addrspace(3) @global_smem, i32 %41, !dbg !26
  %43 = select i1 %36, i32 16, i32 0, !dbg !26
  tail call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, $2;", "r,l,r"(ptr addrspace(3) %42, ptr addrspace(1) %24, i32 %43) #2, !dbg !26
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !26
  %44 = icmp slt i32 %13, %5, !dbg !27
  %45 = and i1 %31, %44, !dbg !28
  %46 = getelementptr i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 4096), i32 %41, !dbg !29
  %47 = select i1 %45, i32 16, i32 0, !dbg !29
  tail call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, $2;", "r,l,r"(ptr addrspace(3) %46, ptr addrspace(1) %29, i32 %47) #2, !dbg !29
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !29
  %48 = icmp sgt i32 %5, 32, !dbg !24
  %49 = getelementptr i8, ptr addrspace(1) %24, i64 64, !dbg !30
  %50 = sext i32 %32 to i64, !dbg !31
  %51 = getelementptr [2 x i8], ptr addrspace(1) %29, i64 %50, !dbg !31
  %52 = or disjoint i32 %15, 32, !dbg !25
  %53 = icmp slt i32 %52, %5, !dbg !25
  %54 = and i1 %30, %53, !dbg !32
  %55 = and i1 %48, %54, !dbg !24
  %56 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %41, !dbg !26
  %57 = select i1 %55, i32 16, i32 0, !dbg !26
  tail call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, $2;", "r,l,r"(ptr addrspace(3) %56, ptr addrspace(1) %49, i32 %57) #2, !dbg !26
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !26
  %58 = or disjoint i32 %13, 32, !dbg !27
  %59 = icmp slt i32 %58, %5, !dbg !27
  %60 = and i1 %31, %59, !dbg !28
  %61 = and i1 %48, %60, !dbg !24
  %62 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 6144), i32 %41, !dbg !29
  %63 = select i1 %61, i32 16, i32 0, !dbg !29
  tail call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, $2;", "r,l,r"(ptr addrspace(3) %62, ptr addrspace(1) %51, i32 %63) #2, !dbg !29
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !29
  tail call void @llvm.nvvm.cp.async.wait.group(i32 2), !dbg !26
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !26
  %64 = shl nuw nsw i32 %11, 6, !dbg !26
  %65 = and i32 %64, 960, !dbg !26
  %66 = shl nuw nsw i32 %11, 3, !dbg !26
  %67 = and i32 %66, 48, !dbg !26
  %68 = and i32 %11, 16, !dbg !26
  %69 = and i32 %37, 1024, !dbg !26
  %70 = xor i32 %67, %68, !dbg !26
  %71 = or disjoint i32 %69, %70, !dbg !26
  %72 = or disjoint i32 %71, %65, !dbg !26
  %73 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %72, !dbg !26
  %74 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %73), !dbg !26
  %75 = shl nuw nsw i32 %68, 1, !dbg !29
  %76 = and i32 %11, 32, !dbg !29
  %77 = lshr exact i32 %76, 1, !dbg !29
  %78 = or disjoint i32 %65, %67, !dbg !29
  %79 = or disjoint i32 %75, %77, !dbg !29
  %80 = xor i32 %78, %79, !dbg !29
  %81 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 4096), i32 %80, !dbg !29
  %82 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) %81), !dbg !29
  br i1 %33, label %.lr.ph, label %._crit_edge, !dbg !24

.lr.ph:                                           ; preds = %8
  %83 = extractvalue { i32, i32, i32, i32 } %82, 3, !dbg !29
  %84 = bitcast i32 %83 to <2 x half>, !dbg !29
  %85 = extractelement <2 x half> %84, i64 1, !dbg !29
  %86 = extractelement <2 x half> %84, i64 0, !dbg !29
  %87 = extractvalue { i32, i32, i32, i32 } %82, 2, !dbg !29
  %88 = bitcast i32 %87 to <2 x half>, !dbg !29
  %89 = extractelement <2 x half> %88, i64 1, !dbg !29
  %90 = extractelement <2 x half> %88, i64 0, !dbg !29
  %91 = extractvalue { i32, i32, i32, i32 } %82, 1, !dbg !29
  %92 = bitcast i32 %91 to <2 x half>, !dbg !29
  %93 = extractelement <2 x half> %92, i64 1, !dbg !29
  %94 = extractelement <2 x half> %92, i64 0, !dbg !29
  %95 = extractvalue { i32, i32, i32, i32 } %82, 0, !dbg !29
  %96 = bitcast i32 %95 to <2 x half>, !dbg !29
  %97 = extractelement <2 x half> %96, i64 1, !dbg !29
  %98 = extractelement <2 x half> %96, i64 0, !dbg !29
  %99 = extractvalue { i32, i32, i32, i32 } %74, 3, !dbg !26
  %100 = bitcast i32 %99 to <2 x half>, !dbg !26
  %101 = extractelement <2 x half> %100, i64 1, !dbg !26
  %102 = extractelement <2 x half> %100, i64 0, !dbg !26
  %103 = extractvalue { i32, i32, i32, i32 } %74, 2, !dbg !26
  %104 = bitcast i32 %103 to <2 x half>, !dbg !26
  %105 = extractelement <2 x half> %104, i64 1, !dbg !26
  %106 = extractelement <2 x half> %104, i64 0, !dbg !26
  %107 = extractvalue { i32, i32, i32, i32 } %74, 1, !dbg !26
  %108 = bitcast i32 %107 to <2 x half>, !dbg !26
  %109 = extractelement <2 x half> %108, i64 1, !dbg !26
  %110 = extractelement <2 x half> %108, i64 0, !dbg !26
  %111 = extractvalue { i32, i32, i32, i32 } %74, 0, !dbg !26
  %112 = bitcast i32 %111 to <2 x half>, !dbg !26
  %113 = extractelement <2 x half> %112, i64 1, !dbg !26
  %114 = extractelement <2 x half> %112, i64 0, !dbg !26
  %115 = add nsw i32 %5, -64
  %116 = xor i32 %72, 32
  br label %117, !dbg !24

117:                                              ; preds = %.lr.ph, %117
  %.pn5098 = phi half [ %85, %.lr.ph ], [ %240, %117 ]
  %.pn5297 = phi half [ %86, %.lr.ph ], [ %239, %117 ]
  %.pn5496 = phi half [ %89, %.lr.ph ], [ %237, %117 ]
  %.pn5695 = phi half [ %90, %.lr.ph ], [ %236, %117 ]
  %.pn5894 = phi half [ %93, %.lr.ph ], [ %234, %117 ]
  %.pn6093 = phi half [ %94, %.lr.ph ], [ %233, %117 ]
  %.pn6292 = phi half [ %97, %.lr.ph ], [ %231, %117 ]
  %.pn6491 = phi half [ %98, %.lr.ph ], [ %230, %117 ]
  %.pn3490 = phi half [ %101, %.lr.ph ], [ %222, %117 ]
  %.pn3689 = phi half [ %102, %.lr.ph ], [ %221, %117 ]
  %.pn3888 = phi half [ %105, %.lr.ph ], [ %219, %117 ]
  %.pn4087 = phi half [ %106, %.lr.ph ], [ %218, %117 ]
  %.pn4286 = phi half [ %109, %.lr.ph ], [ %216, %117 ]
  %.pn4485 = phi half [ %110, %.lr.ph ], [ %215, %117 ]
  %.pn4684 = phi half [ %113, %.lr.ph ], [ %213, %117 ]
  %.pn4883 = phi half [ %114, %.lr.ph ], [ %212, %117 ]
  %118 = phi ptr addrspace(3) [ getelementptr (i8, ptr addrspace(3) @global_smem, i32 4096), %.lr.ph ], [ %204, %117 ]
  %119 = phi ptr addrspace(3) [ @global_smem, %.lr.ph ], [ %203, %117 ]
  %120 = phi i32 [ -1, %.lr.ph ], [ %134, %117 ]
  %121 = phi i32 [ 1, %.lr.ph ], [ %186, %117 ]
  %.pn3282 = phi ptr addrspace(1) [ %51, %.lr.ph ], [ %183, %117 ]
  %.pn1681 = phi ptr addrspace(1) [ %49, %.lr.ph ], [ %182, %117 ]
  %122 = phi float [ 0.000000e+00, %.lr.ph ], [ %242, %117 ]
  %123 = phi float [ 0.000000e+00, %.lr.ph ], [ %243, %117 ]
  %124 = phi float [ 0.000000e+00, %.lr.ph ], [ %244, %117 ]
  %125 = phi float [ 0.000000e+00, %.lr.ph ], [ %245, %117 ]
  %126 = phi float [ 0.000000e+00, %.lr.ph ], [ %247, %117 ]
  %127 = phi float [ 0.000000e+00, %.lr.ph ], [ %248, %117 ]
  %128 = phi float [ 0.000000e+00, %.lr.ph ], [ %249, %117 ]
  %129 = phi float [ 0.000000e+00, %.lr.ph ], [ %250, %117 ]
  %130 = phi i32 [ 0, %.lr.ph ], [ %251, %117 ]
  %131 = icmp slt i32 %130, %115, !dbg !24
  %132 = add i32 %120, 1, !dbg !24
  %133 = icmp sgt i32 %132, 1, !dbg !24
  %134 = select i1 %133, i32 0, i32 %132, !dbg !24
  tail call void @llvm.nvvm.cp.async.wait.group(i32 2), !dbg !26
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !26
  %135 = getelementptr inbounds nuw i8, ptr addrspace(3) %119, i32 %116, !dbg !26
  %136 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %135), !dbg !26
  %137 = extractvalue { i32, i32, i32, i32 } %136, 0, !dbg !26
  %138 = extractvalue { i32, i32, i32, i32 } %136, 1, !dbg !26
  %139 = extractvalue { i32, i32, i32, i32 } %136, 2, !dbg !26
  %140 = extractvalue { i32, i32, i32, i32 } %136, 3, !dbg !26
  %141 = getelementptr inbounds nuw i8, ptr addrspace(3) %118, i32 %80, !dbg !29
  %142 = getelementptr inbounds nuw i8, ptr addrspace(3) %141, i32 1024, !dbg !29
  %143 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) nonnull %142), !dbg !29
  %144 = extractvalue { i32, i32, i32, i32 } %143, 0, !dbg !29
  %145 = extractvalue { i32, i32, i32, i32 } %143, 1, !dbg !29
  %146 = extractvalue { i32, i32, i32, i32 } %143, 2, !dbg !29
  %147 = extractvalue { i32, i32, i32, i32 } %143, 3, !dbg !29
  %148 = insertelement <2 x half> poison, half %.pn4883, i64 0, !dbg !33
  %149 = insertelement <2 x half> %148, half %.pn4684, i64 1, !dbg !33
  %150 = bitcast <2 x half> %149 to i32, !dbg !33
  %151 = insertelement <2 x half> poison, half %.pn4485, i64 0, !dbg !33
  %152 = insertelement <2 x half> %151, half %.pn4286, i64 1, !dbg !33
  %153 = bitcast <2 x half> %152 to i32, !dbg !33
  %154 = insertelement <2 x half> poison, half %.pn4087, i64 0, !dbg !33
  %155 = insertelement <2 x half> %154, half %.pn3888, i64 1, !dbg !33
  %156 = bitcast <2 x half> %155 to i32, !dbg !33
  %157 = insertelement <2 x half> poison, half %.pn3689, i64 0, !dbg !33
  %158 = insertelement <2 x half> %157, half %.pn3490, i64 1, !dbg !33
  %159 = bitcast <2 x half> %158 to i32, !dbg !33
  %160 = insertelement <2 x half> poison, half %.pn6491, i64 0, !dbg !33
  %161 = insertelement <2 x half> %160, half %.pn6292, i64 1, !dbg !33
  %162 = bitcast <2 x half> %161 to i32, !dbg !33
  %163 = insertelement <2 x half> poison, half %.pn6093, i64 0, !dbg !33
  %164 = insertelement <2 x half> %163, half %.pn5894, i64 1, !dbg !33
  %165 = bitcast <2 x half> %164 to i32, !dbg !33
  %166 = insertelement <2 x half> poison, half %.pn5695, i64 0, !dbg !33
  %167 = insertelement <2 x half> %166, half %.pn5496, i64 1, !dbg !33
  %168 = bitcast <2 x half> %167 to i32, !dbg !33
  %169 = insertelement <2 x half> poison, half %.pn5297, i64 0, !dbg !33
  %170 = insertelement <2 x half> %169, half %.pn5098, i64 1, !dbg !33
  %171 = bitcast <2 x half> %170 to i32, !dbg !33
  %172 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %122, float %123, float %124, float %125, i32 %150, i32 %153, i32 %156, i32 %159, i32 %162, i32 %165) #2, !dbg !33
  %173 = extractvalue { float, float, float, float } %172, 0, !dbg !33
  %174 = extractvalue { float, float, float, float } %172, 1, !dbg !33
  %175 = extractvalue { float, float, float, float } %172, 2, !dbg !33
  %176 = extractvalue { float, float, float, float } %172, 3, !dbg !33
  %177 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %126, float %127, float %128, float %129, i32 %150, i32 %153, i32 %156, i32 %159, i32 %168, i32 %171) #2, !dbg !33
  %178 = extractvalue { float, float, float, float } %177, 0, !dbg !33
  %179 = extractvalue { float, float, float, float } %177, 1, !dbg !33
  %180 = extractvalue { float, float, float, float } %177, 2, !dbg !33
  %181 = extractvalue { float, float, float, float } %177, 3, !dbg !33
  %182 = getelementptr i8, ptr addrspace(1) %.pn1681, i64 64, !dbg !30
  %183 = getelementptr [2 x i8], ptr addrspace(1) %.pn3282, i64 %50, !dbg !31
  %184 = add i32 %121, 1, !dbg !24
  %185 = icmp sgt i32 %184, 1, !dbg !24
  %186 = select i1 %185, i32 0, i32 %184, !dbg !24
  %187 = add i32 %130, 64, !dbg !24
  %188 = or disjoint i32 %187, %15, !dbg !25
  %189 = icmp slt i32 %188, %5, !dbg !25
  %190 = and i1 %30, %189, !dbg !32
  %191 = shl i32 %186, 10, !dbg !26
  %192 = and i1 %131, %190, !dbg !24
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !26
  %gep = getelementptr [2 x i8], ptr addrspace(3) %42, i32 %191, !dbg !26
  %193 = select i1 %192, i32 16, i32 0, !dbg !26
  tail call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, $2;", "r,l,r"(ptr addrspace(3) %gep, ptr addrspace(1) %182, i32 %193) #2, !dbg !26
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !26
  %194 = or disjoint i32 %187, %13, !dbg !27
  %195 = icmp slt i32 %194, %5, !dbg !27
  %196 = and i1 %31, %195, !dbg !28
  %197 = and i1 %131, %196, !dbg !24
  %gep80 = getelementptr [2 x i8], ptr addrspace(3) %46, i32 %191, !dbg !29
  %198 = select i1 %197, i32 16, i32 0, !dbg !29
  tail call void asm sideeffect "cp.async.cg.shared.global [ $0 + 0 ], [ $1 + 0 ], 0x10, $2;", "r,l,r"(ptr addrspace(3) %gep80, ptr addrspace(1) %183, i32 %198) #2, !dbg !29
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !29
  %199 = add i32 %134, 1, !dbg !24
  %200 = icmp sgt i32 %199, 1, !dbg !24
  %201 = shl i32 %199, 10, !dbg !26
  %202 = select i1 %200, i32 0, i32 %201, !dbg !24
  %203 = getelementptr [2 x i8], ptr addrspace(3) @global_smem, i32 %202, !dbg !26
  %204 = getelementptr [2 x i8], ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 4096), i32 %202, !dbg !29
  tail call void @llvm.nvvm.cp.async.wait.group(i32 2), !dbg !26
  tail call void @llvm.nvvm.cp.async.wait.group(i32 2), !dbg !26
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !26
  %205 = getelementptr inbounds nuw i8, ptr addrspace(3) %203, i32 %72, !dbg !26
  %206 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %205), !dbg !26
  %207 = extractvalue { i32, i32, i32, i32 } %206, 0, !dbg !26
  %208 = extractvalue { i32, i32, i32, i32 } %206, 1, !dbg !26
  %209 = extractvalue { i32, i32, i32, i32 } %206, 2, !dbg !26
  %210 = extractvalue { i32, i32, i32, i32 } %206, 3, !dbg !26
  %211 = bitcast i32 %207 to <2 x half>, !dbg !26
  %212 = extractelement <2 x half> %211, i64 0, !dbg !26
  %213 = extractelement <2 x half> %211, i64 1, !dbg !26
  %214 = bitcast i32 %208 to <2 x half>, !dbg !26
  %215 = extractelement <2 x half> %214, i64 0, !dbg !26
  %216 = extractelement <2 x half> %214, i64 1, !dbg !26
  %217 = bitcast i32 %209 to <2 x half>, !dbg !26
  %218 = extractelement <2 x half> %217, i64 0, !dbg !26
  %219 = extractelement <2 x half> %217, i64 1, !dbg !26
  %220 = bitcast i32 %210 to <2 x half>, !dbg !26
  %221 = extractelement <2 x half> %220, i64 0, !dbg !26
  %222 = extractelement <2 x half> %220, i64 1, !dbg !26
  %223 = getelementptr inbounds nuw i8, ptr addrspace(3) %204, i32 %80, !dbg !29
  %224 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) %223), !dbg !29
  %225 = extractvalue { i32, i32, i32, i32 } %224, 0, !dbg !29
  %226 = extractvalue { i32, i32, i32, i32 } %224, 1, !dbg !29
  %227 = extractvalue { i32, i32, i32, i32 } %224, 2, !dbg !29
  %228 = extractvalue { i32, i32, i32, i32 } %224, 3, !dbg !29
  %229 = bitcast i32 %225 to <2 x half>, !dbg !29
  %230 = extractelement <2 x half> %229, i64 0, !dbg !29
  %231 = extractelement <2 x half> %229, i64 1, !dbg !29
  %232 = bitcast i32 %226 to <2 x half>, !dbg !29
  %233 = extractelement <2 x half> %232, i64 0, !dbg !29
  %234 = extractelement <2 x half> %232, i64 1, !dbg !29
  %235 = bitcast i32 %227 to <2 x half>, !dbg !29
  %236 = extractelement <2 x half> %235, i64 0, !dbg !29
  %237 = extractelement <2 x half> %235, i64 1, !dbg !29
  %238 = bitcast i32 %228 to <2 x half>, !dbg !29
  %239 = extractelement <2 x half> %238, i64 0, !dbg !29
  %240 = extractelement <2 x half> %238, i64 1, !dbg !29
  %241 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %173, float %174, float %175, float %176, i32 %137, i32 %138, i32 %139, i32 %140, i32 %144, i32 %145) #2, !dbg !33
  %242 = extractvalue { float, float, float, float } %241, 0, !dbg !33
  %243 = extractvalue { float, float, float, float } %241, 1, !dbg !33
  %244 = extractvalue { float, float, float, float } %241, 2, !dbg !33
  %245 = extractvalue { float, float, float, float } %241, 3, !dbg !33
  %246 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %178, float %179, float %180, float %181, i32 %137, i32 %138, i32 %139, i32 %140, i32 %146, i32 %147) #2, !dbg !33
  %247 = extractvalue { float, float, float, float } %246, 0, !dbg !33
  %248 = extractvalue { float, float, float, float } %246, 1, !dbg !33
  %249 = extractvalue { float, float, float, float } %246, 2, !dbg !33
  %250 = extractvalue { float, float, float, float } %246, 3, !dbg !33
  %251 = add i32 %130, 32, !dbg !24
  %252 = icmp slt i32 %251, %5, !dbg !24
  br i1 %252, label %117, label %._crit_edge, !dbg !24

._crit_edge:                                      ; preds = %117, %8
  %253 = phi float [ 0.000000e+00, %8 ], [ %242, %117 ], !dbg !34
  %254 = phi float [ 0.000000e+00, %8 ], [ %243, %117 ], !dbg !34
  %255 = phi float [ 0.000000e+00, %8 ], [ %244, %117 ], !dbg !34
  %256 = phi float [ 0.000000e+00, %8 ], [ %245, %117 ], !dbg !34
  %257 = phi float [ 0.000000e+00, %8 ], [ %247, %117 ], !dbg !34
  %258 = phi float [ 0.000000e+00, %8 ], [ %248, %117 ], !dbg !34
  %259 = phi float [ 0.000000e+00, %8 ], [ %249, %117 ], !dbg !34
  %260 = phi float [ 0.000000e+00, %8 ], [ %250, %117 ], !dbg !34
  %261 = shl nuw nsw i32 %11, 2, !dbg !15
  %262 = and i32 %261, 28, !dbg !15
  %263 = or disjoint i32 %262, %18, !dbg !16
  %264 = lshr i32 %11, 3, !dbg !15
  %265 = and i32 %264, 15, !dbg !15
  %266 = or disjoint i32 %10, %265, !dbg !14
  %267 = or disjoint i32 %266, 16, !dbg !14
  tail call void @llvm.nvvm.cp.async.wait.group(i32 0), !dbg !24
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !24
  %268 = icmp slt i32 %266, %3, !dbg !35
  %269 = icmp slt i32 %267, %3, !dbg !35
  %270 = icmp slt i32 %263, %4, !dbg !36
  %271 = and i1 %268, %270, !dbg !37
  %272 = and i1 %269, %270, !dbg !37
  %273 = mul i32 %4, %266, !dbg !38
  %274 = mul i32 %4, %267, !dbg !38
  %275 = sext i32 %273 to i64, !dbg !39
  %276 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %275, !dbg !39
  %277 = sext i32 %274 to i64, !dbg !39
  %278 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %277, !dbg !39
  %279 = zext nneg i32 %263 to i64, !dbg !39
  %280 = getelementptr [4 x i8], ptr addrspace(1) %276, i64 %279, !dbg !39
  %281 = getelementptr [4 x i8], ptr addrspace(1) %278, i64 %279, !dbg !39
  %282 = and i32 %66, 640, !dbg !40
  %283 = and i32 %11, 1, !dbg !40
  %284 = icmp eq i32 %283, 0, !dbg !40
  %285 = select i1 %284, i32 0, i32 2056, !dbg !40
  %286 = and i32 %37, 32, !dbg !40
  %287 = and i32 %261, 16, !dbg !40
  %288 = and i32 %11, 8, !dbg !40
  %289 = icmp eq i32 %288, 0, !dbg !40
  %290 = select i1 %289, i32 0, i32 1088, !dbg !40
  %291 = shl nuw nsw i32 %76, 1, !dbg !40
  %292 = or disjoint i32 %290, %282, !dbg !40
  %293 = xor i32 %292, %291, !dbg !40
  %294 = or disjoint i32 %287, %286, !dbg !40
  %295 = or disjoint i32 %294, %285, !dbg !40
  %296 = or disjoint i32 %295, %293, !dbg !40
  %297 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %296, !dbg !40
  %298 = insertelement <2 x float> poison, float %253, i64 0, !dbg !40
  %299 = insertelement <2 x float> %298, float %254, i64 1, !dbg !40
  store <2 x float> %299, ptr addrspace(3) %297, align 8, !dbg !40
  %300 = getelementptr inbounds nuw i8, ptr addrspace(3) %297, i32 256, !dbg !40
  %301 = insertelement <2 x float> poison, float %255, i64 0, !dbg !40
  %302 = insertelement <2 x float> %301, float %256, i64 1, !dbg !40
  store <2 x float> %302, ptr addrspace(3) %300, align 8, !dbg !40
  %303 = xor i32 %296, 8, !dbg !40
  %304 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %303, !dbg !40
  %305 = insertelement <2 x float> poison, float %257, i64 0, !dbg !40
  %306 = insertelement <2 x float> %305, float %258, i64 1, !dbg !40
  store <2 x float> %306, ptr addrspace(3) %304, align 8, !dbg !40
  %307 = getelementptr inbounds nuw i8, ptr addrspace(3) %304, i32 256, !dbg !40
  %308 = insertelement <2 x float> poison, float %259, i64 0, !dbg !40
  %309 = insertelement <2 x float> %308, float %260, i64 1, !dbg !40
  store <2 x float> %309, ptr addrspace(3) %307, align 8, !dbg !40
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !40
  %310 = shl nuw nsw i32 %14, 5, !dbg !40
  %311 = and i32 %261, 384, !dbg !40
  %312 = and i32 %39, 24, !dbg !40
  %313 = icmp eq i32 %68, 0, !dbg !40
  %314 = select i1 %313, i32 0, i32 1088, !dbg !40
  %315 = or disjoint i32 %310, %311, !dbg !40
  %316 = or disjoint i32 %314, %312, !dbg !40
  %317 = xor i32 %316, %315, !dbg !40
  %318 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %317, !dbg !40
  %319 = getelementptr inbounds nuw i8, ptr addrspace(3) %318, i32 512, !dbg !40
  %320 = load <2 x i32>, ptr addrspace(3) %319, align 8, !dbg !40
  %321 = xor i32 %317, 2056, !dbg !40
  %322 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %321, !dbg !40
  %323 = getelementptr inbounds nuw i8, ptr addrspace(3) %322, i32 512, !dbg !40
  %324 = load <2 x i32>, ptr addrspace(3) %323, align 8, !dbg !40
  %.extract = load i32, ptr addrspace(3) %318, align 8, !dbg !40
  %325 = getelementptr inbounds nuw i8, ptr addrspace(3) %318, i32 4, !dbg !40
  %.extract72 = load i32, ptr addrspace(3) %325, align 4, !dbg !40
  %.extract73 = load i32, ptr addrspace(3) %322, align 8, !dbg !40
  %326 = getelementptr inbounds nuw i8, ptr addrspace(3) %322, i32 4, !dbg !40
  %.extract74 = load i32, ptr addrspace(3) %326, align 4, !dbg !40
  tail call void asm sideeffect "@$5 st.global.v4.b32 [ $4 + 0 ], { $0, $1, $2, $3 };", "r,r,r,r,l,b"(i32 %.extract, i32 %.extract72, i32 %.extract73, i32 %.extract74, ptr addrspace(1) %280, i1 %271) #2, !dbg !40
  %.extract75 = extractelement <2 x i32> %320, i64 0, !dbg !40
  %.extract76 = extractelement <2 x i32> %320, i64 1, !dbg !40
  %.extract77 = extractelement <2 x i32> %324, i64 0, !dbg !40
  %.extract78 = extractelement <2 x i32> %324, i64 1, !dbg !40
  tail call void asm sideeffect "@$5 st.global.v4.b32 [ $4 + 0 ], { $0, $1, $2, $3 };", "r,r,r,r,l,b"(i32 %.extract75, i32 %.extract76, i32 %.extract77, i32 %.extract78, ptr addrspace(1) %281, i1 %272) #2, !dbg !40
  ret void, !dbg !41
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x() #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #1

; Function Attrs: nounwind
declare void @llvm.nvvm.cp.async.commit.group() #2

; Function Attrs: nounwind
declare void @llvm.nvvm.cp.async.wait.group(i32 immarg) #2

; Function Attrs: convergent nocallback nounwind
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #3

; Function Attrs: convergent nocallback nofree nounwind memory(argmem: read)
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) readonly captures(none)) #4

; Function Attrs: convergent nocallback nofree nounwind memory(argmem: read)
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) readonly captures(none)) #4

attributes #0 = { nounwind "nvvm.reqntid"="128" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { nounwind }
attributes #3 = { convergent nocallback nounwind }
attributes #4 = { convergent nocallback nofree nounwind memory(argmem: read) }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}

!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, producer: "triton", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "triton_kernels.py", directory: ".")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 4, !"nvvm-reflect-ftz", i32 1}
!4 = distinct !DISubprogram(name: "matmul", linkageName: "matmul", scope: !1, file: !1, line: 35, type: !5, scopeLine: 35, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!5 = !DISubroutineType(cc: DW_CC_normal, types: !6)
!6 = !{null, !7, !7, !9, !11, !11, !11, !12, !12}
!7 = !DIDerivedType(tag: DW_TAG_pointer_type, name: "pointer", baseType: !8, size: 64, dwarfAddressSpace: 1)
!8 = !DIBasicType(name: "half", size: 16, encoding: DW_ATE_float)
!9 = !DIDerivedType(tag: DW_TAG_pointer_type, name: "pointer", baseType: !10, size: 64, dwarfAddressSpace: 1)
!10 = !DIBasicType(name: "float", size: 32, encoding: DW_ATE_float)
!11 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!12 = !DIDerivedType(tag: DW_TAG_pointer_type, name: "pointer", baseType: !13, size: 64, dwarfAddressSpace: 1)
!13 = !DIBasicType(name: "unknown_type", encoding: DW_ATE_signed)
!14 = !DILocation(line: 37, column: 9, scope: !4)
!15 = !DILocation(line: 37, column: 33, scope: !4)
!16 = !DILocation(line: 38, column: 9, scope: !4)
!17 = !DILocation(line: 40, column: 16, scope: !4)
!18 = !DILocation(line: 40, column: 12, scope: !4)
!19 = !DILocation(line: 41, column: 17, scope: !4)
!20 = !DILocation(line: 41, column: 13, scope: !4)
!21 = !DILocation(line: 44, column: 33, scope: !4)
!22 = !DILocation(line: 46, column: 61, scope: !4)
!23 = !DILocation(line: 50, column: 18, scope: !4)
!24 = !DILocation(line: 43, column: 5, scope: !4)
!25 = !DILocation(line: 44, column: 52, scope: !4)
!26 = !DILocation(line: 44, column: 13, scope: !4)
!27 = !DILocation(line: 46, column: 34, scope: !4)
!28 = !DILocation(line: 46, column: 33, scope: !4)
!29 = !DILocation(line: 46, column: 13, scope: !4)
!30 = !DILocation(line: 49, column: 9, scope: !4)
!31 = !DILocation(line: 50, column: 9, scope: !4)
!32 = !DILocation(line: 44, column: 32, scope: !4)
!33 = !DILocation(line: 48, column: 16, scope: !4)
!34 = !DILocation(line: 42, column: 12, scope: !4)
!35 = !DILocation(line: 51, column: 15, scope: !4)
!36 = !DILocation(line: 51, column: 34, scope: !4)
!37 = !DILocation(line: 51, column: 14, scope: !4)
!38 = !DILocation(line: 52, column: 18, scope: !4)
!39 = !DILocation(line: 52, column: 14, scope: !4)
!40 = !DILocation(line: 52, column: 5, scope: !4)
!41 = !DILocation(line: 35, column: 1, scope: !4)
