; dynamic shared memory: 4096
target datalayout = "e-p3:32:32-p4:32:32-p5:32:32-p6:32:32-p7:32:32-p101:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"

@global_smem = external addrspace(3) global [0 x i8], align 16

; Function Attrs: nounwind
define ptx_kernel void @matmul(ptr addrspace(1) %0, ptr addrspace(1) %1, ptr addrspace(1) %2, i32 %3, i32 %4, i32 %5, ptr addrspace(1) nofree readnone captures(none) %6, ptr addrspace(1) nofree readnone captures(none) %7) local_unnamed_addr #0 !dbg !4 {
  %9 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !12
  %10 = shl i32 %9, 5, !dbg !12
  %11 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !13
  %12 = lshr i32 %11, 5, !dbg !13
  %13 = and i32 %12, 3, !dbg !13
  %14 = or disjoint i32 %13, 4, !dbg !13
  %15 = or disjoint i32 %13, 8, !dbg !13
  %16 = or disjoint i32 %13, 12, !dbg !13
  %17 = or disjoint i32 %13, 16, !dbg !13
  %18 = or disjoint i32 %13, 20, !dbg !13
  %19 = or disjoint i32 %13, 24, !dbg !13
  %20 = or i32 %12, 28, !dbg !13
  %21 = and i32 %11, 31, !dbg !13
  %22 = or disjoint i32 %13, %10, !dbg !12
  %23 = or disjoint i32 %14, %10, !dbg !12
  %24 = or disjoint i32 %15, %10, !dbg !12
  %25 = or disjoint i32 %16, %10, !dbg !12
  %26 = or disjoint i32 %17, %10, !dbg !12
  %27 = or disjoint i32 %18, %10, !dbg !12
  %28 = or disjoint i32 %19, %10, !dbg !12
  %29 = or disjoint i32 %20, %10, !dbg !12
  %30 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !14
  %31 = shl nuw nsw i32 %30, 5, !dbg !14
  %32 = or disjoint i32 %31, %21, !dbg !14
  %33 = zext nneg i32 %32 to i64, !dbg !15
  %34 = icmp slt i32 %22, %3, !dbg !16
  %35 = icmp slt i32 %23, %3, !dbg !16
  %36 = icmp slt i32 %24, %3, !dbg !16
  %37 = icmp slt i32 %25, %3, !dbg !16
  %38 = icmp slt i32 %26, %3, !dbg !16
  %39 = icmp slt i32 %27, %3, !dbg !16
  %40 = icmp slt i32 %28, %3, !dbg !16
  %41 = icmp slt i32 %29, %3, !dbg !16
  %42 = icmp slt i32 %32, %4, !dbg !17
  %43 = icmp sgt i32 %5, 0, !dbg !18
  br i1 %43, label %.lr.ph, label %.._crit_edge_crit_edge, !dbg !18

.._crit_edge_crit_edge:                           ; preds = %8
  %.pre = shl nuw nsw i32 %11, 3, !dbg !19
  %.pre64 = shl nuw nsw i32 %11, 1, !dbg !19
  %.pre66 = and i32 %11, 64, !dbg !19
  br label %._crit_edge, !dbg !18

.lr.ph:                                           ; preds = %8
  %44 = shl i32 %4, 5, !dbg !20
  %45 = mul i32 %4, %20, !dbg !21
  %46 = sext i32 %45 to i64, !dbg !15
  %47 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %46, !dbg !15
  %48 = getelementptr [2 x i8], ptr addrspace(1) %47, i64 %33, !dbg !15
  %49 = mul i32 %4, %19, !dbg !21
  %50 = sext i32 %49 to i64, !dbg !15
  %51 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %50, !dbg !15
  %52 = getelementptr [2 x i8], ptr addrspace(1) %51, i64 %33, !dbg !15
  %53 = mul i32 %4, %18, !dbg !21
  %54 = sext i32 %53 to i64, !dbg !15
  %55 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %54, !dbg !15
  %56 = getelementptr [2 x i8], ptr addrspace(1) %55, i64 %33, !dbg !15
  %57 = mul i32 %4, %17, !dbg !21
  %58 = sext i32 %57 to i64, !dbg !15
  %59 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %58, !dbg !15
  %60 = getelementptr [2 x i8], ptr addrspace(1) %59, i64 %33, !dbg !15
  %61 = mul i32 %4, %16, !dbg !21
  %62 = sext i32 %61 to i64, !dbg !15
  %63 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %62, !dbg !15
  %64 = getelementptr [2 x i8], ptr addrspace(1) %63, i64 %33, !dbg !15
  %65 = mul i32 %4, %15, !dbg !21
  %66 = sext i32 %65 to i64, !dbg !15
  %67 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %66, !dbg !15
  %68 = getelementptr [2 x i8], ptr addrspace(1) %67, i64 %33, !dbg !15
  %69 = mul i32 %4, %14, !dbg !21
  %70 = sext i32 %69 to i64, !dbg !15
  %71 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %70, !dbg !15
  %72 = getelementptr [2 x i8], ptr addrspace(1) %71, i64 %33, !dbg !15
  %73 = mul i32 %4, %13, !dbg !21
  %74 = sext i32 %73 to i64, !dbg !15
  %75 = getelementptr [2 x i8], ptr addrspace(1) %1, i64 %74, !dbg !15
  %76 = getelementptr [2 x i8], ptr addrspace(1) %75, i64 %33, !dbg !15
  %77 = mul i32 %5, %29, !dbg !22
  %78 = sext i32 %77 to i64, !dbg !23
  %79 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %78, !dbg !23
  %80 = zext nneg i32 %21 to i64, !dbg !23
  %81 = getelementptr [2 x i8], ptr addrspace(1) %79, i64 %80, !dbg !23
  %82 = mul i32 %5, %28, !dbg !22
  %83 = sext i32 %82 to i64, !dbg !23
  %84 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %83, !dbg !23
  %85 = getelementptr [2 x i8], ptr addrspace(1) %84, i64 %80, !dbg !23
  %86 = mul i32 %5, %27, !dbg !22
  %87 = sext i32 %86 to i64, !dbg !23
  %88 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %87, !dbg !23
  %89 = getelementptr [2 x i8], ptr addrspace(1) %88, i64 %80, !dbg !23
  %90 = mul i32 %5, %26, !dbg !22
  %91 = sext i32 %90 to i64, !dbg !23
  %92 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %91, !dbg !23
  %93 = getelementptr [2 x i8], ptr addrspace(1) %92, i64 %80, !dbg !23
  %94 = mul i32 %5, %25, !dbg !22
  %95 = sext i32 %94 to i64, !dbg !23
  %96 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %95, !dbg !23
  %97 = getelementptr [2 x i8], ptr addrspace(1) %96, i64 %80, !dbg !23
  %98 = mul i32 %5, %24, !dbg !22
  %99 = sext i32 %98 to i64, !dbg !23
  %100 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %99, !dbg !23
  %101 = getelementptr [2 x i8], ptr addrspace(1) %100, i64 %80, !dbg !23
  %102 = mul i32 %5, %23, !dbg !22
  %103 = sext i32 %102 to i64, !dbg !23
  %104 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %103, !dbg !23
  %105 = getelementptr [2 x i8], ptr addrspace(1) %104, i64 %80, !dbg !23
  %106 = mul i32 %5, %22, !dbg !22
  %107 = sext i32 %106 to i64, !dbg !23
  %108 = getelementptr [2 x i8], ptr addrspace(1) %0, i64 %107, !dbg !23
  %109 = getelementptr [2 x i8], ptr addrspace(1) %108, i64 %80, !dbg !23
  %110 = shl nuw nsw i32 %11, 1
  %111 = and i32 %110, 126
  %112 = and i32 %11, 64
  %113 = icmp eq i32 %112, 0
  %114 = select i1 %113, i32 0, i32 144
  %115 = xor i32 %114, %111
  %116 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %115
  %117 = or disjoint i32 %115, 512
  %118 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %117
  %119 = or disjoint i32 %115, 1024
  %120 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %119
  %121 = or disjoint i32 %115, 1536
  %122 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %121
  %123 = xor i32 %115, 288
  %124 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %123
  %125 = or disjoint i32 %123, 512
  %126 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %125
  %127 = or disjoint i32 %123, 1024
  %128 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %127
  %129 = or disjoint i32 %123, 1536
  %130 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %129
  %131 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %115
  %132 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %117
  %133 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %119
  %134 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %121
  %135 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %123
  %136 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %125
  %137 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %127
  %138 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %129
  %139 = shl nuw nsw i32 %11, 6
  %140 = and i32 %139, 960
  %141 = shl nuw nsw i32 %11, 3
  %142 = and i32 %141, 48
  %143 = and i32 %11, 16
  %144 = shl nuw nsw i32 %112, 4
  %145 = or disjoint i32 %140, %144
  %146 = xor i32 %142, %143
  %147 = or disjoint i32 %145, %146
  %148 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %147
  %149 = xor i32 %147, 32
  %150 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %149
  %151 = shl nuw nsw i32 %21, 6
  %152 = lshr i32 %11, 1
  %153 = and i32 %152, 16
  %154 = xor i32 %142, %153
  %155 = or disjoint i32 %154, %151
  %156 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %155
  %157 = xor i32 %155, 32
  %158 = getelementptr inbounds nuw i8, ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @global_smem, i32 2048), i32 %157
  %159 = sext i32 %44 to i64
  br label %160, !dbg !18

160:                                              ; preds = %.lr.ph, %160
  %161 = phi float [ 0.000000e+00, %.lr.ph ], [ %267, %160 ]
  %162 = phi float [ 0.000000e+00, %.lr.ph ], [ %268, %160 ]
  %163 = phi float [ 0.000000e+00, %.lr.ph ], [ %269, %160 ]
  %164 = phi float [ 0.000000e+00, %.lr.ph ], [ %270, %160 ]
  %165 = phi float [ 0.000000e+00, %.lr.ph ], [ %272, %160 ]
  %166 = phi float [ 0.000000e+00, %.lr.ph ], [ %273, %160 ]
  %167 = phi float [ 0.000000e+00, %.lr.ph ], [ %274, %160 ]
  %168 = phi float [ 0.000000e+00, %.lr.ph ], [ %275, %160 ]
  %.pn1862 = phi ptr addrspace(1) [ %48, %.lr.ph ], [ %291, %160 ]
  %.pn2061 = phi ptr addrspace(1) [ %52, %.lr.ph ], [ %290, %160 ]
  %.pn2260 = phi ptr addrspace(1) [ %56, %.lr.ph ], [ %289, %160 ]
  %.pn2459 = phi ptr addrspace(1) [ %60, %.lr.ph ], [ %288, %160 ]
  %.pn2658 = phi ptr addrspace(1) [ %64, %.lr.ph ], [ %287, %160 ]
  %.pn2857 = phi ptr addrspace(1) [ %68, %.lr.ph ], [ %286, %160 ]
  %.pn3056 = phi ptr addrspace(1) [ %72, %.lr.ph ], [ %285, %160 ]
  %.pn3255 = phi ptr addrspace(1) [ %76, %.lr.ph ], [ %284, %160 ]
  %.pn254 = phi ptr addrspace(1) [ %81, %.lr.ph ], [ %283, %160 ]
  %.pn453 = phi ptr addrspace(1) [ %85, %.lr.ph ], [ %282, %160 ]
  %.pn652 = phi ptr addrspace(1) [ %89, %.lr.ph ], [ %281, %160 ]
  %.pn851 = phi ptr addrspace(1) [ %93, %.lr.ph ], [ %280, %160 ]
  %.pn1050 = phi ptr addrspace(1) [ %97, %.lr.ph ], [ %279, %160 ]
  %.pn1249 = phi ptr addrspace(1) [ %101, %.lr.ph ], [ %278, %160 ]
  %.pn1448 = phi ptr addrspace(1) [ %105, %.lr.ph ], [ %277, %160 ]
  %.pn1647 = phi ptr addrspace(1) [ %109, %.lr.ph ], [ %276, %160 ]
  %169 = phi i32 [ 0, %.lr.ph ], [ %292, %160 ]
  %170 = or disjoint i32 %169, %21, !dbg !24
  %171 = icmp slt i32 %170, %5, !dbg !24
  %172 = and i1 %34, %171, !dbg !25
  %173 = and i1 %35, %171, !dbg !25
  %174 = and i1 %36, %171, !dbg !25
  %175 = and i1 %37, %171, !dbg !25
  %176 = and i1 %38, %171, !dbg !25
  %177 = and i1 %39, %171, !dbg !25
  %178 = and i1 %40, %171, !dbg !25
  %179 = and i1 %41, %171, !dbg !25
  %180 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn1647, i1 %172) #4, !dbg !26
  %181 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn1448, i1 %173) #4, !dbg !26
  %182 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn1249, i1 %174) #4, !dbg !26
  %183 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn1050, i1 %175) #4, !dbg !26
  %184 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn851, i1 %176) #4, !dbg !26
  %185 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn652, i1 %177) #4, !dbg !26
  %186 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn453, i1 %178) #4, !dbg !26
  %187 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn254, i1 %179) #4, !dbg !26
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !26
  %188 = insertelement <1 x i16> poison, i16 %180, i64 0, !dbg !26
  store <1 x i16> %188, ptr addrspace(3) %116, align 2, !dbg !26
  %189 = insertelement <1 x i16> poison, i16 %182, i64 0, !dbg !26
  store <1 x i16> %189, ptr addrspace(3) %118, align 2, !dbg !26
  %190 = insertelement <1 x i16> poison, i16 %184, i64 0, !dbg !26
  store <1 x i16> %190, ptr addrspace(3) %120, align 2, !dbg !26
  %191 = insertelement <1 x i16> poison, i16 %186, i64 0, !dbg !26
  store <1 x i16> %191, ptr addrspace(3) %122, align 2, !dbg !26
  %192 = insertelement <1 x i16> poison, i16 %181, i64 0, !dbg !26
  store <1 x i16> %192, ptr addrspace(3) %124, align 2, !dbg !26
  %193 = insertelement <1 x i16> poison, i16 %183, i64 0, !dbg !26
  store <1 x i16> %193, ptr addrspace(3) %126, align 2, !dbg !26
  %194 = insertelement <1 x i16> poison, i16 %185, i64 0, !dbg !26
  store <1 x i16> %194, ptr addrspace(3) %128, align 2, !dbg !26
  %195 = insertelement <1 x i16> poison, i16 %187, i64 0, !dbg !26
  store <1 x i16> %195, ptr addrspace(3) %130, align 2, !dbg !26
  %196 = or disjoint i32 %169, %13, !dbg !27
  %197 = or disjoint i32 %169, %14, !dbg !27
  %198 = or disjoint i32 %169, %15, !dbg !27
  %199 = or disjoint i32 %169, %16, !dbg !27
  %200 = or disjoint i32 %169, %17, !dbg !27
  %201 = or disjoint i32 %169, %18, !dbg !27
  %202 = or disjoint i32 %169, %19, !dbg !27
  %203 = or disjoint i32 %169, %20, !dbg !27
  %204 = icmp slt i32 %196, %5, !dbg !27
  %205 = icmp slt i32 %197, %5, !dbg !27
  %206 = icmp slt i32 %198, %5, !dbg !27
  %207 = icmp slt i32 %199, %5, !dbg !27
  %208 = icmp slt i32 %200, %5, !dbg !27
  %209 = icmp slt i32 %201, %5, !dbg !27
  %210 = icmp slt i32 %202, %5, !dbg !27
  %211 = icmp slt i32 %203, %5, !dbg !27
  %212 = and i1 %42, %204, !dbg !28
  %213 = and i1 %42, %205, !dbg !28
  %214 = and i1 %42, %206, !dbg !28
  %215 = and i1 %42, %207, !dbg !28
  %216 = and i1 %42, %208, !dbg !28
  %217 = and i1 %42, %209, !dbg !28
  %218 = and i1 %42, %210, !dbg !28
  %219 = and i1 %42, %211, !dbg !28
  %220 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn3255, i1 %212) #4, !dbg !29
  %221 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn3056, i1 %213) #4, !dbg !29
  %222 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn2857, i1 %214) #4, !dbg !29
  %223 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn2658, i1 %215) #4, !dbg !29
  %224 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn2459, i1 %216) #4, !dbg !29
  %225 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn2260, i1 %217) #4, !dbg !29
  %226 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn2061, i1 %218) #4, !dbg !29
  %227 = tail call i16 asm sideeffect "mov.u16 $0, $1;\0A\09@$3 ld.global.b16 { $0 }, [ $2 + 0 ];", "=c,c,l,b"(i16 0, ptr addrspace(1) %.pn1862, i1 %219) #4, !dbg !29
  %228 = insertelement <1 x i16> poison, i16 %220, i64 0, !dbg !29
  store <1 x i16> %228, ptr addrspace(3) %131, align 2, !dbg !29
  %229 = insertelement <1 x i16> poison, i16 %222, i64 0, !dbg !29
  store <1 x i16> %229, ptr addrspace(3) %132, align 2, !dbg !29
  %230 = insertelement <1 x i16> poison, i16 %224, i64 0, !dbg !29
  store <1 x i16> %230, ptr addrspace(3) %133, align 2, !dbg !29
  %231 = insertelement <1 x i16> poison, i16 %226, i64 0, !dbg !29
  store <1 x i16> %231, ptr addrspace(3) %134, align 2, !dbg !29
  %232 = insertelement <1 x i16> poison, i16 %221, i64 0, !dbg !29
  store <1 x i16> %232, ptr addrspace(3) %135, align 2, !dbg !29
  %233 = insertelement <1 x i16> poison, i16 %223, i64 0, !dbg !29
  store <1 x i16> %233, ptr addrspace(3) %136, align 2, !dbg !29
  %234 = insertelement <1 x i16> poison, i16 %225, i64 0, !dbg !29
  store <1 x i16> %234, ptr addrspace(3) %137, align 2, !dbg !29
  %235 = insertelement <1 x i16> poison, i16 %227, i64 0, !dbg !29
  store <1 x i16> %235, ptr addrspace(3) %138, align 2, !dbg !29
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !26
  %236 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %148), !dbg !26
  %237 = extractvalue { i32, i32, i32, i32 } %236, 0, !dbg !26
  %238 = extractvalue { i32, i32, i32, i32 } %236, 1, !dbg !26
  %239 = extractvalue { i32, i32, i32, i32 } %236, 2, !dbg !26
  %240 = extractvalue { i32, i32, i32, i32 } %236, 3, !dbg !26
  %241 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %150), !dbg !26
  %242 = extractvalue { i32, i32, i32, i32 } %241, 0, !dbg !26
  %243 = extractvalue { i32, i32, i32, i32 } %241, 1, !dbg !26
  %244 = extractvalue { i32, i32, i32, i32 } %241, 2, !dbg !26
  %245 = extractvalue { i32, i32, i32, i32 } %241, 3, !dbg !26
  %246 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) %156), !dbg !29
  %247 = extractvalue { i32, i32, i32, i32 } %246, 0, !dbg !29
  %248 = extractvalue { i32, i32, i32, i32 } %246, 1, !dbg !29
  %249 = extractvalue { i32, i32, i32, i32 } %246, 2, !dbg !29
  %250 = extractvalue { i32, i32, i32, i32 } %246, 3, !dbg !29
  %251 = tail call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) %158), !dbg !29
  %252 = extractvalue { i32, i32, i32, i32 } %251, 0, !dbg !29
  %253 = extractvalue { i32, i32, i32, i32 } %251, 1, !dbg !29
  %254 = extractvalue { i32, i32, i32, i32 } %251, 2, !dbg !29
  %255 = extractvalue { i32, i32, i32, i32 } %251, 3, !dbg !29
  %256 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %161, float %162, float %163, float %164, i32 %237, i32 %238, i32 %239, i32 %240, i32 %247, i32 %248) #4, !dbg !30
  %257 = extractvalue { float, float, float, float } %256, 0, !dbg !30
  %258 = extractvalue { float, float, float, float } %256, 1, !dbg !30
  %259 = extractvalue { float, float, float, float } %256, 2, !dbg !30
  %260 = extractvalue { float, float, float, float } %256, 3, !dbg !30
  %261 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %165, float %166, float %167, float %168, i32 %237, i32 %238, i32 %239, i32 %240, i32 %252, i32 %253) #4, !dbg !30
  %262 = extractvalue { float, float, float, float } %261, 0, !dbg !30
  %263 = extractvalue { float, float, float, float } %261, 1, !dbg !30
  %264 = extractvalue { float, float, float, float } %261, 2, !dbg !30
  %265 = extractvalue { float, float, float, float } %261, 3, !dbg !30
  %266 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %257, float %258, float %259, float %260, i32 %242, i32 %243, i32 %244, i32 %245, i32 %249, i32 %250) #4, !dbg !30
  %267 = extractvalue { float, float, float, float } %266, 0, !dbg !30
  %268 = extractvalue { float, float, float, float } %266, 1, !dbg !30
  %269 = extractvalue { float, float, float, float } %266, 2, !dbg !30
  %270 = extractvalue { float, float, float, float } %266, 3, !dbg !30
  %271 = tail call { float, float, float, float } asm sideeffect "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { $0, $1, $2, $3 }, { $8, $9, $10, $11 }, { $12, $13 }, { $4, $5, $6, $7 };", "=f,=f,=f,=f,0,1,2,3,r,r,r,r,r,r"(float %262, float %263, float %264, float %265, i32 %242, i32 %243, i32 %244, i32 %245, i32 %254, i32 %255) #4, !dbg !30
  %272 = extractvalue { float, float, float, float } %271, 0, !dbg !30
  %273 = extractvalue { float, float, float, float } %271, 1, !dbg !30
  %274 = extractvalue { float, float, float, float } %271, 2, !dbg !30
  %275 = extractvalue { float, float, float, float } %271, 3, !dbg !30
  %276 = getelementptr i8, ptr addrspace(1) %.pn1647, i64 64, !dbg !31
  %277 = getelementptr i8, ptr addrspace(1) %.pn1448, i64 64, !dbg !31
  %278 = getelementptr i8, ptr addrspace(1) %.pn1249, i64 64, !dbg !31
  %279 = getelementptr i8, ptr addrspace(1) %.pn1050, i64 64, !dbg !31
  %280 = getelementptr i8, ptr addrspace(1) %.pn851, i64 64, !dbg !31
  %281 = getelementptr i8, ptr addrspace(1) %.pn652, i64 64, !dbg !31
  %282 = getelementptr i8, ptr addrspace(1) %.pn453, i64 64, !dbg !31
  %283 = getelementptr i8, ptr addrspace(1) %.pn254, i64 64, !dbg !31
  %284 = getelementptr [2 x i8], ptr addrspace(1) %.pn3255, i64 %159, !dbg !32
  %285 = getelementptr [2 x i8], ptr addrspace(1) %.pn3056, i64 %159, !dbg !32
  %286 = getelementptr [2 x i8], ptr addrspace(1) %.pn2857, i64 %159, !dbg !32
  %287 = getelementptr [2 x i8], ptr addrspace(1) %.pn2658, i64 %159, !dbg !32
  %288 = getelementptr [2 x i8], ptr addrspace(1) %.pn2459, i64 %159, !dbg !32
  %289 = getelementptr [2 x i8], ptr addrspace(1) %.pn2260, i64 %159, !dbg !32
  %290 = getelementptr [2 x i8], ptr addrspace(1) %.pn2061, i64 %159, !dbg !32
  %291 = getelementptr [2 x i8], ptr addrspace(1) %.pn1862, i64 %159, !dbg !32
  %292 = add i32 %169, 32, !dbg !18
  %293 = icmp slt i32 %292, %5, !dbg !18
  br i1 %293, label %160, label %._crit_edge, !dbg !18

._crit_edge:                                      ; preds = %160, %.._crit_edge_crit_edge
  %.pre-phi67 = phi i32 [ %.pre66, %.._crit_edge_crit_edge ], [ %112, %160 ], !dbg !19
  %.pre-phi65 = phi i32 [ %.pre64, %.._crit_edge_crit_edge ], [ %110, %160 ], !dbg !19
  %.pre-phi = phi i32 [ %.pre, %.._crit_edge_crit_edge ], [ %141, %160 ], !dbg !19
  %294 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %267, %160 ], !dbg !33
  %295 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %268, %160 ], !dbg !33
  %296 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %269, %160 ], !dbg !33
  %297 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %270, %160 ], !dbg !33
  %298 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %272, %160 ], !dbg !33
  %299 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %273, %160 ], !dbg !33
  %300 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %274, %160 ], !dbg !33
  %301 = phi float [ 0.000000e+00, %.._crit_edge_crit_edge ], [ %275, %160 ], !dbg !33
  %302 = and i1 %34, %42, !dbg !34
  %303 = and i1 %35, %42, !dbg !34
  %304 = and i1 %36, %42, !dbg !34
  %305 = and i1 %37, %42, !dbg !34
  %306 = and i1 %38, %42, !dbg !34
  %307 = and i1 %39, %42, !dbg !34
  %308 = and i1 %40, %42, !dbg !34
  %309 = and i1 %41, %42, !dbg !34
  %310 = mul i32 %4, %22, !dbg !35
  %311 = mul i32 %4, %23, !dbg !35
  %312 = mul i32 %4, %24, !dbg !35
  %313 = mul i32 %4, %25, !dbg !35
  %314 = mul i32 %4, %26, !dbg !35
  %315 = mul i32 %4, %27, !dbg !35
  %316 = mul i32 %4, %28, !dbg !35
  %317 = mul i32 %4, %29, !dbg !35
  %318 = sext i32 %310 to i64, !dbg !36
  %319 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %318, !dbg !36
  %320 = sext i32 %311 to i64, !dbg !36
  %321 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %320, !dbg !36
  %322 = sext i32 %312 to i64, !dbg !36
  %323 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %322, !dbg !36
  %324 = sext i32 %313 to i64, !dbg !36
  %325 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %324, !dbg !36
  %326 = sext i32 %314 to i64, !dbg !36
  %327 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %326, !dbg !36
  %328 = sext i32 %315 to i64, !dbg !36
  %329 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %328, !dbg !36
  %330 = sext i32 %316 to i64, !dbg !36
  %331 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %330, !dbg !36
  %332 = sext i32 %317 to i64, !dbg !36
  %333 = getelementptr [4 x i8], ptr addrspace(1) %2, i64 %332, !dbg !36
  %334 = getelementptr [4 x i8], ptr addrspace(1) %319, i64 %33, !dbg !36
  %335 = getelementptr [4 x i8], ptr addrspace(1) %321, i64 %33, !dbg !36
  %336 = getelementptr [4 x i8], ptr addrspace(1) %323, i64 %33, !dbg !36
  %337 = getelementptr [4 x i8], ptr addrspace(1) %325, i64 %33, !dbg !36
  %338 = getelementptr [4 x i8], ptr addrspace(1) %327, i64 %33, !dbg !36
  %339 = getelementptr [4 x i8], ptr addrspace(1) %329, i64 %33, !dbg !36
  %340 = getelementptr [4 x i8], ptr addrspace(1) %331, i64 %33, !dbg !36
  %341 = getelementptr [4 x i8], ptr addrspace(1) %333, i64 %33, !dbg !36
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !19
  %342 = shl nuw nsw i32 %11, 8, !dbg !19
  %343 = and i32 %342, 3072, !dbg !19
  %344 = shl nuw nsw i32 %11, 4, !dbg !19
  %345 = and i32 %344, 48, !dbg !19
  %346 = and i32 %.pre-phi, 192, !dbg !19
  %347 = and i32 %.pre-phi65, 72, !dbg !19
  %348 = shl nuw nsw i32 %.pre-phi67, 2, !dbg !19
  %349 = or disjoint i32 %343, %345, !dbg !19
  %350 = xor i32 %346, %347, !dbg !19
  %351 = or disjoint i32 %349, %350, !dbg !19
  %352 = or disjoint i32 %351, %348, !dbg !19
  %353 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %352, !dbg !19
  %354 = insertelement <2 x float> poison, float %294, i64 0, !dbg !19
  %355 = insertelement <2 x float> %354, float %296, i64 1, !dbg !19
  store <2 x float> %355, ptr addrspace(3) %353, align 8, !dbg !19
  %356 = getelementptr inbounds nuw i8, ptr addrspace(3) %353, i32 512, !dbg !19
  %357 = insertelement <2 x float> poison, float %298, i64 0, !dbg !19
  %358 = insertelement <2 x float> %357, float %300, i64 1, !dbg !19
  store <2 x float> %358, ptr addrspace(3) %356, align 8, !dbg !19
  %359 = xor i32 %352, 8, !dbg !19
  %360 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %359, !dbg !19
  %361 = insertelement <2 x float> poison, float %295, i64 0, !dbg !19
  %362 = insertelement <2 x float> %361, float %297, i64 1, !dbg !19
  store <2 x float> %362, ptr addrspace(3) %360, align 8, !dbg !19
  %363 = getelementptr inbounds nuw i8, ptr addrspace(3) %360, i32 512, !dbg !19
  %364 = insertelement <2 x float> poison, float %299, i64 0, !dbg !19
  %365 = insertelement <2 x float> %364, float %301, i64 1, !dbg !19
  store <2 x float> %365, ptr addrspace(3) %363, align 8, !dbg !19
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !19
  %366 = and i32 %.pre-phi, 120, !dbg !19
  %367 = shl nuw nsw i32 %11, 5, !dbg !19
  %368 = and i32 %367, 512, !dbg !19
  %369 = and i32 %11, 32, !dbg !19
  %370 = icmp eq i32 %369, 0, !dbg !19
  %371 = select i1 %370, i32 0, i32 1032, !dbg !19
  %372 = icmp eq i32 %.pre-phi67, 0, !dbg !19
  %373 = select i1 %372, i32 0, i32 2112, !dbg !19
  %374 = xor i32 %371, %366, !dbg !19
  %375 = xor i32 %374, %373, !dbg !19
  %376 = getelementptr inbounds nuw i8, ptr addrspace(3) @global_smem, i32 %368, !dbg !19
  %377 = getelementptr inbounds nuw i8, ptr addrspace(3) %376, i32 %375, !dbg !19
  %378 = load <2 x i32>, ptr addrspace(3) %377, align 8, !dbg !19
  %379 = getelementptr inbounds nuw i8, ptr addrspace(3) %377, i32 128, !dbg !19
  %380 = load <2 x i32>, ptr addrspace(3) %379, align 8, !dbg !19
  %381 = getelementptr inbounds nuw i8, ptr addrspace(3) %377, i32 256, !dbg !19
  %382 = load <2 x i32>, ptr addrspace(3) %381, align 8, !dbg !19
  %383 = getelementptr inbounds nuw i8, ptr addrspace(3) %377, i32 384, !dbg !19
  %384 = load <2 x i32>, ptr addrspace(3) %383, align 8, !dbg !19
  %.extract = extractelement <2 x i32> %378, i64 0, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract, ptr addrspace(1) %334, i1 %302) #4, !dbg !19
  %.extract40 = extractelement <2 x i32> %380, i64 0, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract40, ptr addrspace(1) %335, i1 %303) #4, !dbg !19
  %.extract41 = extractelement <2 x i32> %378, i64 1, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract41, ptr addrspace(1) %336, i1 %304) #4, !dbg !19
  %.extract42 = extractelement <2 x i32> %380, i64 1, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract42, ptr addrspace(1) %337, i1 %305) #4, !dbg !19
  %.extract43 = extractelement <2 x i32> %382, i64 0, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract43, ptr addrspace(1) %338, i1 %306) #4, !dbg !19
  %.extract44 = extractelement <2 x i32> %384, i64 0, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract44, ptr addrspace(1) %339, i1 %307) #4, !dbg !19
  %.extract45 = extractelement <2 x i32> %382, i64 1, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract45, ptr addrspace(1) %340, i1 %308) #4, !dbg !19
  %.extract46 = extractelement <2 x i32> %384, i64 1, !dbg !19
  tail call void asm sideeffect "@$2 st.global.b32 [ $1 + 0 ], { $0 };", "r,l,b"(i32 %.extract46, ptr addrspace(1) %341, i1 %309) #4, !dbg !19
  ret void, !dbg !37
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x() #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #1

; Function Attrs: convergent nocallback nounwind
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #2

; Function Attrs: convergent nocallback nofree nounwind memory(argmem: read)
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) readonly captures(none)) #3

; Function Attrs: convergent nocallback nofree nounwind memory(argmem: read)
declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3(ptr addrspace(3) readonly captures(none)) #3

attributes #0 = { nounwind "nvvm.reqntid"="128" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { convergent nocallback nounwind }
attributes #3 = { convergent nocallback nofree nounwind memory(argmem: read) }
attributes #4 = { nounwind }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}

!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, producer: "triton", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "triton_kernels.py", directory: ".")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 4, !"nvvm-reflect-ftz", i32 1}
!4 = distinct !DISubprogram(name: "matmul", linkageName: "matmul", scope: !1, file: !1, line: 35, type: !5, scopeLine: 35, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!5 = !DISubroutineType(cc: DW_CC_normal, types: !6)
!6 = !{null, !7, !7, !9, !11, !11, !11, !7, !7}
!7 = !DIDerivedType(tag: DW_TAG_pointer_type, name: "pointer", baseType: !8, size: 64, dwarfAddressSpace: 1)
!8 = !DIBasicType(name: "unknown_type", encoding: DW_ATE_signed)
!9 = !DIDerivedType(tag: DW_TAG_pointer_type, name: "pointer", baseType: !10, size: 64, dwarfAddressSpace: 1)
!10 = !DIBasicType(name: "float", size: 32, encoding: DW_ATE_float)
!11 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!12 = !DILocation(line: 37, column: 9, scope: !4)
!13 = !DILocation(line: 37, column: 33, scope: !4)
!14 = !DILocation(line: 38, column: 9, scope: !4)
!15 = !DILocation(line: 41, column: 13, scope: !4)
!16 = !DILocation(line: 44, column: 33, scope: !4)
!17 = !DILocation(line: 46, column: 61, scope: !4)
!18 = !DILocation(line: 43, column: 5, scope: !4)
!19 = !DILocation(line: 52, column: 5, scope: !4)
!20 = !DILocation(line: 50, column: 18, scope: !4)
!21 = !DILocation(line: 41, column: 17, scope: !4)
!22 = !DILocation(line: 40, column: 16, scope: !4)
!23 = !DILocation(line: 40, column: 12, scope: !4)
!24 = !DILocation(line: 44, column: 52, scope: !4)
!25 = !DILocation(line: 44, column: 32, scope: !4)
!26 = !DILocation(line: 44, column: 13, scope: !4)
!27 = !DILocation(line: 46, column: 34, scope: !4)
!28 = !DILocation(line: 46, column: 33, scope: !4)
!29 = !DILocation(line: 46, column: 13, scope: !4)
!30 = !DILocation(line: 48, column: 16, scope: !4)
!31 = !DILocation(line: 49, column: 9, scope: !4)
!32 = !DILocation(line: 50, column: 9, scope: !4)
!33 = !DILocation(line: 42, column: 12, scope: !4)
!34 = !DILocation(line: 51, column: 14, scope: !4)
!35 = !DILocation(line: 52, column: 18, scope: !4)
!36 = !DILocation(line: 52, column: 14, scope: !4)
!37 = !DILocation(line: 35, column: 1, scope: !4)
