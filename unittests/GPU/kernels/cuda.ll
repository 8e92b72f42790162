target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

@_ZZ7row_sumE4part = internal unnamed_addr addrspace(3) global [32 x float] undef, align 4
@_ZZ9histogramE3own = internal addrspace(3) global [64 x i32] undef, align 4
@_ZZ12tiled_matmulE4left = internal unnamed_addr addrspace(3) global [16 x [16 x float]] undef, align 4
@_ZZ12tiled_matmulE5right = internal unnamed_addr addrspace(3) global [16 x [17 x float]] undef, align 4
@_ZZ13racing_matmulE4left = internal unnamed_addr addrspace(3) global [16 x [16 x float]] undef, align 4
@_ZZ13racing_matmulE5right = internal unnamed_addr addrspace(3) global [16 x [17 x float]] undef, align 4
@_ZZ14pipelined_copyE5stage = internal addrspace(3) global [3 x [512 x float]] undef, align 16

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind memory(argmem: readwrite)
define dso_local ptx_kernel void @vector_add(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, ptr noundef writeonly captures(none) %2, i32 noundef %3) local_unnamed_addr #0 !dbg !12 {
  %5 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !15
  %6 = tail call noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x(), !dbg !18
  %7 = mul nuw nsw i32 %5, %6, !dbg !21
  %8 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !22
  %9 = add nuw nsw i32 %7, %8, !dbg !25
  %10 = icmp slt i32 %9, %3, !dbg !26
  br i1 %10, label %11, label %14, !dbg !27

11:                                               ; preds = %4
  %12 = tail call noundef range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %13 = mul nuw nsw i32 %12, %6
  br label %15, !dbg !27

14:                                               ; preds = %15, %4
  ret void, !dbg !28

15:                                               ; preds = %11, %15
  %16 = phi i32 [ %9, %11 ], [ %24, %15 ]
  %17 = zext nneg i32 %16 to i64, !dbg !29
  %18 = getelementptr inbounds nuw float, ptr %0, i64 %17, !dbg !29
  %19 = load float, ptr %18, align 4, !dbg !29, !tbaa !30
  %20 = getelementptr inbounds nuw float, ptr %1, i64 %17, !dbg !32
  %21 = load float, ptr %20, align 4, !dbg !32, !tbaa !30
  %22 = fadd contract float %19, %21, !dbg !33
  %23 = getelementptr inbounds nuw float, ptr %2, i64 %17, !dbg !34
  store float %22, ptr %23, align 4, !dbg !35, !tbaa !30
  %24 = add nuw nsw i32 %16, %13, !dbg !36
  %25 = icmp slt i32 %24, %3, !dbg !26
  br i1 %25, label %15, label %14, !dbg !27, !llvm.loop !37
}

; Function Attrs: convergent mustprogress noinline norecurse nounwind
define dso_local ptx_kernel void @row_sum(ptr noundef readonly captures(none) %0, ptr noundef writeonly captures(none) %1, i32 noundef %2) local_unnamed_addr #1 !dbg !41 {
  %4 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !42
  %5 = icmp slt i32 %4, %2, !dbg !44
  br i1 %5, label %8, label %6, !dbg !45

6:                                                ; preds = %22, %3
  %7 = phi float [ 0.000000e+00, %3 ], [ %29, %22 ]
  br label %12, !dbg !46

8:                                                ; preds = %3
  %9 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %10 = mul nsw i32 %2, %9
  %11 = tail call noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  br label %22, !dbg !45

12:                                               ; preds = %6, %12
  %13 = phi i32 [ %17, %12 ], [ 16, %6 ]
  %14 = phi float [ %16, %12 ], [ %7, %6 ]
  %15 = tail call contract float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %14, i32 %13, i32 31), !dbg !49
  %16 = fadd contract float %14, %15, !dbg !50
  %17 = lshr i32 %13, 1, !dbg !51
  %18 = icmp eq i32 %17, 0, !dbg !52
  br i1 %18, label %19, label %12, !dbg !46, !llvm.loop !53

19:                                               ; preds = %12
  %20 = and i32 %4, 31, !dbg !55
  %21 = icmp eq i32 %20, 0, !dbg !56
  br i1 %21, label %32, label %36, !dbg !56

22:                                               ; preds = %8, %22
  %23 = phi i32 [ %4, %8 ], [ %30, %22 ]
  %24 = phi float [ 0.000000e+00, %8 ], [ %29, %22 ]
  %25 = add nsw i32 %23, %10, !dbg !57
  %26 = sext i32 %25 to i64, !dbg !58
  %27 = getelementptr inbounds float, ptr %0, i64 %26, !dbg !58
  %28 = load float, ptr %27, align 4, !dbg !58, !tbaa !30
  %29 = fadd contract float %24, %28, !dbg !59
  %30 = add nuw nsw i32 %23, %11, !dbg !60
  %31 = icmp slt i32 %30, %2, !dbg !44
  br i1 %31, label %22, label %6, !dbg !45, !llvm.loop !61

32:                                               ; preds = %19
  %33 = lshr exact i32 %4, 5, !dbg !63
  %34 = zext nneg i32 %33 to i64, !dbg !64
  %35 = getelementptr inbounds nuw float, ptr addrspacecast (ptr addrspace(3) @_ZZ7row_sumE4part to ptr), i64 %34, !dbg !64
  store float %16, ptr %35, align 4, !dbg !65, !tbaa !30
  br label %36, !dbg !64

36:                                               ; preds = %32, %19
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !66
  %37 = icmp samesign ult i32 %4, 32, !dbg !67
  br i1 %37, label %38, label %61, !dbg !67

38:                                               ; preds = %36
  %39 = tail call noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x(), !dbg !68
  %40 = lshr i32 %39, 5, !dbg !70
  %41 = icmp samesign ult i32 %4, %40, !dbg !71
  br i1 %41, label %42, label %46, !dbg !72

42:                                               ; preds = %38
  %43 = zext nneg i32 %4 to i64, !dbg !73
  %44 = getelementptr inbounds nuw float, ptr addrspacecast (ptr addrspace(3) @_ZZ7row_sumE4part to ptr), i64 %43, !dbg !73
  %45 = load float, ptr %44, align 4, !dbg !73, !tbaa !30
  br label %46, !dbg !72

46:                                               ; preds = %38, %42
  %47 = phi float [ %45, %42 ], [ 0.000000e+00, %38 ]
  br label %48, !dbg !74

48:                                               ; preds = %46, %48
  %49 = phi i32 [ %53, %48 ], [ 16, %46 ]
  %50 = phi float [ %52, %48 ], [ %47, %46 ]
  %51 = tail call contract float @llvm.nvvm.shfl.sync.bfly.f32(i32 -1, float %50, i32 %49, i32 31), !dbg !76
  %52 = fadd contract float %50, %51, !dbg !77
  %53 = lshr i32 %49, 1, !dbg !78
  %54 = icmp eq i32 %53, 0, !dbg !79
  br i1 %54, label %55, label %48, !dbg !74, !llvm.loop !80

55:                                               ; preds = %48
  %56 = icmp eq i32 %4, 0, !dbg !82
  br i1 %56, label %57, label %61, !dbg !82

57:                                               ; preds = %55
  %58 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !83
  %59 = zext nneg i32 %58 to i64, !dbg !85
  %60 = getelementptr inbounds nuw float, ptr %1, i64 %59, !dbg !85
  store float %52, ptr %60, align 4, !dbg !86, !tbaa !30
  br label %61, !dbg !85

61:                                               ; preds = %55, %57, %36
  ret void, !dbg !87
}

; Function Attrs: convergent nocallback nounwind
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) #2

; Function Attrs: convergent mustprogress noinline norecurse nounwind
define dso_local ptx_kernel void @histogram(ptr noundef readonly captures(none) %0, ptr noundef captures(none) %1, i32 noundef %2) local_unnamed_addr #1 !dbg !88 {
  %4 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !89
  %5 = icmp samesign ult i32 %4, 64, !dbg !91
  br i1 %5, label %6, label %9, !dbg !91

6:                                                ; preds = %3
  %7 = zext nneg i32 %4 to i64, !dbg !92
  %8 = getelementptr inbounds nuw i32, ptr addrspacecast (ptr addrspace(3) @_ZZ9histogramE3own to ptr), i64 %7, !dbg !92
  store i32 0, ptr %8, align 4, !dbg !93, !tbaa !8
  br label %9, !dbg !92

9:                                                ; preds = %6, %3
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !94
  %10 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !95
  %11 = tail call noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x(), !dbg !97
  %12 = mul nuw nsw i32 %10, %11, !dbg !99
  %13 = add nuw nsw i32 %12, %4, !dbg !100
  %14 = icmp slt i32 %13, %2, !dbg !101
  br i1 %14, label %15, label %18, !dbg !102

15:                                               ; preds = %9
  %16 = tail call noundef range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %17 = mul nuw nsw i32 %16, %11
  br label %19, !dbg !102

18:                                               ; preds = %19, %9
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !103
  br i1 %5, label %30, label %36, !dbg !104

19:                                               ; preds = %15, %19
  %20 = phi i32 [ %13, %15 ], [ %28, %19 ]
  %21 = zext nneg i32 %20 to i64, !dbg !105
  %22 = getelementptr inbounds nuw i32, ptr %0, i64 %21, !dbg !105
  %23 = load i32, ptr %22, align 4, !dbg !105, !tbaa !8
  %24 = and i32 %23, 63, !dbg !106
  %25 = zext nneg i32 %24 to i64, !dbg !107
  %26 = getelementptr inbounds nuw i32, ptr addrspacecast (ptr addrspace(3) @_ZZ9histogramE3own to ptr), i64 %25, !dbg !107
  %27 = atomicrmw add ptr %26, i32 1 seq_cst, align 4, !dbg !108
  %28 = add nuw nsw i32 %20, %17, !dbg !109
  %29 = icmp slt i32 %28, %2, !dbg !101
  br i1 %29, label %19, label %18, !dbg !102, !llvm.loop !110

30:                                               ; preds = %18
  %31 = zext nneg i32 %4 to i64, !dbg !112
  %32 = getelementptr inbounds nuw i32, ptr %1, i64 %31, !dbg !112
  %33 = getelementptr inbounds nuw i32, ptr addrspacecast (ptr addrspace(3) @_ZZ9histogramE3own to ptr), i64 %31, !dbg !113
  %34 = load i32, ptr %33, align 4, !dbg !113, !tbaa !8
  %35 = atomicrmw add ptr %32, i32 %34 seq_cst, align 4, !dbg !114
  br label %36, !dbg !114

36:                                               ; preds = %30, %18
  ret void, !dbg !115
}

; Function Attrs: convergent mustprogress noinline norecurse nounwind memory(argmem: readwrite, inaccessiblemem: readwrite)
define dso_local ptx_kernel void @ranks(ptr noundef readonly captures(none) %0, ptr noundef writeonly captures(none) %1) local_unnamed_addr #3 !dbg !116 {
  %3 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !117
  %4 = tail call noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x(), !dbg !119
  %5 = mul nuw nsw i32 %3, %4, !dbg !121
  %6 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !122
  %7 = add nuw nsw i32 %5, %6, !dbg !124
  %8 = zext nneg i32 %7 to i64, !dbg !125
  %9 = getelementptr inbounds nuw float, ptr %0, i64 %8, !dbg !125
  %10 = load float, ptr %9, align 4, !dbg !125, !tbaa !30
  %11 = fcmp contract ogt float %10, 0.000000e+00, !dbg !126
  %12 = tail call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %11), !dbg !127
  %13 = and i32 %6, 31, !dbg !128
  %14 = shl nsw i32 -1, %13, !dbg !129
  %15 = xor i32 %14, -1, !dbg !129
  %16 = and i32 %12, %15, !dbg !130
  %17 = tail call range(i32 0, 32) i32 @llvm.ctpop.i32(i32 %16), !dbg !131
  %18 = getelementptr inbounds nuw i32, ptr %1, i64 %8, !dbg !132
  store i32 %17, ptr %18, align 4, !dbg !133, !tbaa !8
  ret void, !dbg !134
}

; Function Attrs: convergent nocallback nounwind memory(inaccessiblemem: readwrite)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1) #4

; Function Attrs: mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.ctpop.i32(i32) #5

; Function Attrs: convergent mustprogress noinline norecurse nounwind
define dso_local ptx_kernel void @tiled_matmul(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, ptr noundef writeonly captures(none) %2, i32 noundef %3) local_unnamed_addr #1 !dbg !135 {
  %5 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !136
  %6 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.y(), !dbg !137
  %7 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !138
  %8 = shl nuw nsw i32 %7, 4, !dbg !139
  %9 = add nuw nsw i32 %8, %6, !dbg !140
  %10 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !141
  %11 = shl nsw i32 %10, 4, !dbg !143
  %12 = add nuw nsw i32 %11, %5, !dbg !144
  %13 = icmp sgt i32 %3, 0, !dbg !145
  br i1 %13, label %14, label %24, !dbg !146

14:                                               ; preds = %4
  %15 = mul nuw nsw i32 %3, %9
  %16 = add nuw i32 %15, %5
  %17 = zext nneg i32 %6 to i64
  %18 = getelementptr inbounds nuw [16 x float], ptr addrspacecast (ptr addrspace(3) @_ZZ12tiled_matmulE4left to ptr), i64 %17
  %19 = zext nneg i32 %5 to i64
  %20 = getelementptr inbounds nuw float, ptr %18, i64 %19
  %21 = getelementptr inbounds nuw [17 x float], ptr addrspacecast (ptr addrspace(3) @_ZZ12tiled_matmulE5right to ptr), i64 %17
  %22 = getelementptr inbounds nuw float, ptr %21, i64 %19
  %23 = getelementptr inbounds nuw float, ptr addrspacecast (ptr addrspace(3) @_ZZ12tiled_matmulE5right to ptr), i64 %19
  br label %30, !dbg !146

24:                                               ; preds = %43, %4
  %25 = phi float [ 0.000000e+00, %4 ], [ %54, %43 ], !dbg !147
  %26 = mul nsw i32 %3, %9, !dbg !148
  %27 = add nsw i32 %26, %12, !dbg !149
  %28 = sext i32 %27 to i64, !dbg !150
  %29 = getelementptr inbounds float, ptr %2, i64 %28, !dbg !150
  store float %25, ptr %29, align 4, !dbg !151, !tbaa !30
  ret void, !dbg !152

30:                                               ; preds = %14, %43
  %31 = phi i32 [ 0, %14 ], [ %44, %43 ]
  %32 = phi float [ 0.000000e+00, %14 ], [ %54, %43 ]
  %33 = add i32 %16, %31, !dbg !153
  %34 = sext i32 %33 to i64, !dbg !154
  %35 = getelementptr inbounds float, ptr %0, i64 %34, !dbg !154
  %36 = load float, ptr %35, align 4, !dbg !154, !tbaa !30
  store float %36, ptr %20, align 4, !dbg !155, !tbaa !30
  %37 = add nuw nsw i32 %31, %6, !dbg !156
  %38 = mul nuw nsw i32 %37, %3, !dbg !157
  %39 = add nuw nsw i32 %38, %12, !dbg !158
  %40 = zext nneg i32 %39 to i64, !dbg !159
  %41 = getelementptr inbounds nuw float, ptr %1, i64 %40, !dbg !159
  %42 = load float, ptr %41, align 4, !dbg !159, !tbaa !30
  store float %42, ptr %22, align 4, !dbg !160, !tbaa !30
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !161
  br label %46, !dbg !162

43:                                               ; preds = %46
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !163
  %44 = add nuw nsw i32 %31, 16, !dbg !164
  %45 = icmp slt i32 %44, %3, !dbg !145
  br i1 %45, label %30, label %24, !dbg !146, !llvm.loop !165

46:                                               ; preds = %30, %46
  %47 = phi i32 [ 0, %30 ], [ %55, %46 ]
  %48 = phi float [ %32, %30 ], [ %54, %46 ]
  %49 = zext nneg i32 %47 to i64, !dbg !167
  %50 = getelementptr inbounds nuw float, ptr %18, i64 %49, !dbg !167
  %51 = load float, ptr %50, align 4, !dbg !167, !tbaa !30
  %52 = getelementptr inbounds nuw [17 x float], ptr %23, i64 %49, !dbg !168
  %53 = load float, ptr %52, align 4, !dbg !168, !tbaa !30
  %54 = tail call contract float @llvm.fma.f32(float %51, float %53, float %48), !dbg !169
  %55 = add nuw nsw i32 %47, 1, !dbg !170
  %56 = icmp eq i32 %55, 16, !dbg !171
  br i1 %56, label %43, label %46, !dbg !162, !llvm.loop !172
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x() #6

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.y() #6

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 65535) i32 @llvm.nvvm.read.ptx.sreg.ctaid.y() #6

; Function Attrs: mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.fma.f32(float, float, float) #5

; Function Attrs: convergent mustprogress noinline norecurse nounwind
define dso_local ptx_kernel void @racing_matmul(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, ptr noundef writeonly captures(none) %2, i32 noundef %3) local_unnamed_addr #1 !dbg !174 {
  %5 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !175
  %6 = tail call i32 @llvm.nvvm.read.ptx.sreg.tid.y(), !dbg !176
  %7 = tail call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y(), !dbg !177
  %8 = shl nuw nsw i32 %7, 4, !dbg !178
  %9 = add nuw nsw i32 %8, %6, !dbg !179
  %10 = tail call noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !180
  %11 = shl nsw i32 %10, 4, !dbg !182
  %12 = add nuw nsw i32 %11, %5, !dbg !183
  %13 = icmp sgt i32 %3, 0, !dbg !184
  br i1 %13, label %14, label %24, !dbg !185

14:                                               ; preds = %4
  %15 = mul nuw nsw i32 %3, %9
  %16 = add nuw i32 %15, %5
  %17 = zext nneg i32 %6 to i64
  %18 = getelementptr inbounds nuw [16 x float], ptr addrspacecast (ptr addrspace(3) @_ZZ13racing_matmulE4left to ptr), i64 %17
  %19 = zext nneg i32 %5 to i64
  %20 = getelementptr inbounds nuw float, ptr %18, i64 %19
  %21 = getelementptr inbounds nuw [17 x float], ptr addrspacecast (ptr addrspace(3) @_ZZ13racing_matmulE5right to ptr), i64 %17
  %22 = getelementptr inbounds nuw float, ptr %21, i64 %19
  %23 = getelementptr inbounds nuw float, ptr addrspacecast (ptr addrspace(3) @_ZZ13racing_matmulE5right to ptr), i64 %19
  br label %30, !dbg !185

24:                                               ; preds = %43, %4
  %25 = phi float [ 0.000000e+00, %4 ], [ %54, %43 ], !dbg !186
  %26 = mul nsw i32 %3, %9, !dbg !187
  %27 = add nsw i32 %26, %12, !dbg !188
  %28 = sext i32 %27 to i64, !dbg !189
  %29 = getelementptr inbounds float, ptr %2, i64 %28, !dbg !189
  store float %25, ptr %29, align 4, !dbg !190, !tbaa !30
  ret void, !dbg !191

30:                                               ; preds = %14, %43
  %31 = phi i32 [ 0, %14 ], [ %44, %43 ]
  %32 = phi float [ 0.000000e+00, %14 ], [ %54, %43 ]
  %33 = add i32 %16, %31, !dbg !192
  %34 = sext i32 %33 to i64, !dbg !193
  %35 = getelementptr inbounds float, ptr %0, i64 %34, !dbg !193
  %36 = load float, ptr %35, align 4, !dbg !193, !tbaa !30
  store float %36, ptr %20, align 4, !dbg !194, !tbaa !30
  %37 = add nuw nsw i32 %31, %6, !dbg !195
  %38 = mul nuw nsw i32 %37, %3, !dbg !196
  %39 = add nuw nsw i32 %38, %12, !dbg !197
  %40 = zext nneg i32 %39 to i64, !dbg !198
  %41 = getelementptr inbounds nuw float, ptr %1, i64 %40, !dbg !198
  %42 = load float, ptr %41, align 4, !dbg !198, !tbaa !30
  store float %42, ptr %22, align 4, !dbg !199, !tbaa !30
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !200
  br label %46, !dbg !201

43:                                               ; preds = %46
  %44 = add nuw nsw i32 %31, 16, !dbg !202
  %45 = icmp slt i32 %44, %3, !dbg !184
  br i1 %45, label %30, label %24, !dbg !185, !llvm.loop !203

46:                                               ; preds = %30, %46
  %47 = phi i32 [ 0, %30 ], [ %55, %46 ]
  %48 = phi float [ %32, %30 ], [ %54, %46 ]
  %49 = zext nneg i32 %47 to i64, !dbg !205
  %50 = getelementptr inbounds nuw float, ptr %18, i64 %49, !dbg !205
  %51 = load float, ptr %50, align 4, !dbg !205, !tbaa !30
  %52 = getelementptr inbounds nuw [17 x float], ptr %23, i64 %49, !dbg !206
  %53 = load float, ptr %52, align 4, !dbg !206, !tbaa !30
  %54 = tail call contract float @llvm.fma.f32(float %51, float %53, float %48), !dbg !207
  %55 = add nuw nsw i32 %47, 1, !dbg !208
  %56 = icmp eq i32 %55, 16, !dbg !209
  br i1 %56, label %43, label %46, !dbg !201, !llvm.loop !210
}

; Function Attrs: convergent mustprogress noinline norecurse nounwind
define dso_local ptx_kernel void @pipelined_copy(ptr noundef %0, ptr noundef writeonly captures(none) %1, i32 noundef %2) local_unnamed_addr #1 !dbg !212 {
  %4 = tail call noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x(), !dbg !213
  %5 = shl nuw nsw i32 %4, 2, !dbg !215
  %6 = sdiv i32 %2, %5, !dbg !216
  %7 = icmp sgt i32 %6, 0, !dbg !217
  br i1 %7, label %8, label %17, !dbg !217

8:                                                ; preds = %3
  %9 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !220
  %10 = shl nuw nsw i32 %9, 2, !dbg !222
  %11 = zext nneg i32 %10 to i64, !dbg !223
  %12 = getelementptr inbounds nuw float, ptr addrspacecast (ptr addrspace(3) @_ZZ14pipelined_copyE5stage to ptr), i64 %11, !dbg !223
  %13 = addrspacecast ptr %12 to ptr addrspace(3), !dbg !224
  %14 = zext nneg i32 %10 to i64, !dbg !225
  %15 = getelementptr inbounds nuw float, ptr %0, i64 %14, !dbg !225
  %16 = addrspacecast ptr %15 to ptr addrspace(1), !dbg !226
  tail call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %13, ptr addrspace(1) %16), !dbg !227
  br label %17, !dbg !227

17:                                               ; preds = %3, %8
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !228
  %18 = icmp sgt i32 %6, 1, !dbg !229
  br i1 %18, label %19, label %29, !dbg !229

19:                                               ; preds = %17
  %20 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !231
  %21 = shl nuw nsw i32 %20, 2, !dbg !233
  %22 = zext nneg i32 %21 to i64, !dbg !234
  %23 = getelementptr inbounds nuw float, ptr getelementptr inbounds nuw (i8, ptr addrspacecast (ptr addrspace(3) @_ZZ14pipelined_copyE5stage to ptr), i64 2048), i64 %22, !dbg !234
  %24 = addrspacecast ptr %23 to ptr addrspace(3), !dbg !235
  %25 = add nuw nsw i32 %5, %21, !dbg !236
  %26 = zext nneg i32 %25 to i64, !dbg !237
  %27 = getelementptr inbounds nuw float, ptr %0, i64 %26, !dbg !237
  %28 = addrspacecast ptr %27 to ptr addrspace(1), !dbg !238
  tail call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %24, ptr addrspace(1) %28), !dbg !239
  br label %29, !dbg !239

29:                                               ; preds = %17, %19
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !240
  %30 = icmp sgt i32 %6, 0, !dbg !241
  br i1 %30, label %31, label %38, !dbg !242

31:                                               ; preds = %29
  %32 = tail call range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %33 = shl nuw nsw i32 %32, 2
  %34 = zext nneg i32 %33 to i64
  %35 = getelementptr inbounds nuw float, ptr addrspacecast (ptr addrspace(3) @_ZZ14pipelined_copyE5stage to ptr), i64 %34, !dbg !242
  %36 = tail call range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %37 = add nuw nsw i32 %36, 1
  br label %39, !dbg !242

38:                                               ; preds = %61, %29
  ret void, !dbg !243

39:                                               ; preds = %31, %61
  %40 = phi i32 [ 0, %31 ], [ %62, %61 ]
  tail call void @llvm.nvvm.cp.async.wait.group(i32 1), !dbg !244
  tail call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0), !dbg !245
  %41 = add nuw nsw i32 %40, 2, !dbg !246
  %42 = icmp slt i32 %41, %6, !dbg !247
  br i1 %42, label %43, label %53, !dbg !247

43:                                               ; preds = %39
  %44 = urem i32 %41, 3, !dbg !249
  %45 = zext nneg i32 %44 to i64, !dbg !250
  %46 = getelementptr inbounds nuw [512 x float], ptr %35, i64 %45, !dbg !250
  %47 = addrspacecast ptr %46 to ptr addrspace(3), !dbg !251
  %48 = mul nuw nsw i32 %41, %5, !dbg !252
  %49 = add nuw nsw i32 %48, %33, !dbg !253
  %50 = zext nneg i32 %49 to i64, !dbg !254
  %51 = getelementptr inbounds nuw float, ptr %0, i64 %50, !dbg !254
  %52 = addrspacecast ptr %51 to ptr addrspace(1), !dbg !255
  tail call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %47, ptr addrspace(1) %52), !dbg !256
  br label %53, !dbg !256

53:                                               ; preds = %39, %43
  tail call void @llvm.nvvm.cp.async.commit.group(), !dbg !257
  %54 = urem i32 %37, %4, !dbg !258
  %55 = urem i32 %40, 3
  %56 = zext nneg i32 %55 to i64
  %57 = getelementptr inbounds nuw [512 x float], ptr addrspacecast (ptr addrspace(3) @_ZZ14pipelined_copyE5stage to ptr), i64 %56
  %58 = shl nuw nsw i32 %54, 2
  %59 = mul nuw nsw i32 %40, %5
  %60 = add nuw nsw i32 %58, %59
  br label %64, !dbg !259

61:                                               ; preds = %64
  %62 = add nuw nsw i32 %40, 1, !dbg !260
  %63 = icmp eq i32 %62, %6, !dbg !241
  br i1 %63, label %38, label %39, !dbg !242, !llvm.loop !261

64:                                               ; preds = %53, %64
  %65 = phi i32 [ 0, %53 ], [ %74, %64 ]
  %66 = or disjoint i32 %65, %58, !dbg !263
  %67 = zext nneg i32 %66 to i64, !dbg !264
  %68 = getelementptr inbounds nuw float, ptr %57, i64 %67, !dbg !264
  %69 = load float, ptr %68, align 4, !dbg !264, !tbaa !30
  %70 = fmul contract float %69, 2.000000e+00, !dbg !265
  %71 = add nuw nsw i32 %65, %60, !dbg !266
  %72 = zext nneg i32 %71 to i64, !dbg !267
  %73 = getelementptr inbounds nuw float, ptr %1, i64 %72, !dbg !267
  store float %70, ptr %73, align 4, !dbg !268, !tbaa !30
  %74 = add nuw nsw i32 %65, 1, !dbg !269
  %75 = icmp eq i32 %74, 4, !dbg !270
  br i1 %75, label %61, label %64, !dbg !259, !llvm.loop !271
}

; Function Attrs: nounwind
declare void @llvm.nvvm.cp.async.wait.group(i32 immarg) #7

; Function Attrs: convergent mustprogress noinline norecurse nounwind
define dso_local ptx_kernel void @one_mma(ptr noundef readonly captures(none) %0, ptr noundef readonly captures(none) %1, ptr noundef writeonly captures(none) %2) local_unnamed_addr #1 !dbg !273 {
  %4 = tail call noundef range(i32 0, 1024) i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !274
  %5 = and i32 %4, 3, !dbg !276
  %6 = shl nuw nsw i32 %4, 1, !dbg !277
  %7 = and i32 %6, 2040, !dbg !277
  %8 = or disjoint i32 %7, %5, !dbg !278
  %9 = zext nneg i32 %8 to i64, !dbg !279
  %10 = getelementptr inbounds nuw i32, ptr %0, i64 %9, !dbg !279
  %11 = load i32, ptr %10, align 4, !dbg !279, !tbaa !8
  %12 = add nuw nsw i32 %7, 64, !dbg !280
  %13 = or disjoint i32 %12, %5, !dbg !281
  %14 = zext nneg i32 %13 to i64, !dbg !282
  %15 = getelementptr inbounds nuw i32, ptr %0, i64 %14, !dbg !282
  %16 = load i32, ptr %15, align 4, !dbg !282, !tbaa !8
  %17 = or disjoint i32 %8, 4, !dbg !283
  %18 = zext nneg i32 %17 to i64, !dbg !284
  %19 = getelementptr inbounds nuw i32, ptr %0, i64 %18, !dbg !284
  %20 = load i32, ptr %19, align 4, !dbg !284, !tbaa !8
  %21 = getelementptr inbounds nuw i8, ptr %15, i64 16, !dbg !285
  %22 = load i32, ptr %21, align 4, !dbg !285, !tbaa !8
  %23 = getelementptr inbounds nuw i32, ptr %1, i64 %9, !dbg !286
  %24 = load i32, ptr %23, align 4, !dbg !286, !tbaa !8
  %25 = getelementptr inbounds nuw i32, ptr %1, i64 %18, !dbg !287
  %26 = load i32, ptr %25, align 4, !dbg !287, !tbaa !8
  %27 = tail call contract { float, float, float, float } asm sideeffect "{\0A.reg .f32 z;\0Amov.f32 z, 0f00000000;\0Amma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {z, z, z, z};\0A}", "=f,=f,=f,=f,r,r,r,r,r,r"(i32 %11, i32 %16, i32 %20, i32 %22, i32 %24, i32 %26) #9, !dbg !288, !srcloc !289
  %28 = extractvalue { float, float, float, float } %27, 0, !dbg !288
  %29 = extractvalue { float, float, float, float } %27, 1, !dbg !288
  %30 = extractvalue { float, float, float, float } %27, 2, !dbg !288
  %31 = extractvalue { float, float, float, float } %27, 3, !dbg !288
  %32 = shl nuw nsw i32 %5, 1, !dbg !290
  %33 = or disjoint i32 %7, %32, !dbg !291
  %34 = zext nneg i32 %33 to i64, !dbg !292
  %35 = getelementptr inbounds nuw float, ptr %2, i64 %34, !dbg !292
  store float %28, ptr %35, align 4, !dbg !293, !tbaa !30
  %36 = getelementptr inbounds nuw i8, ptr %35, i64 4, !dbg !294
  store float %29, ptr %36, align 4, !dbg !295, !tbaa !30
  %37 = or disjoint i32 %12, %32, !dbg !296
  %38 = zext nneg i32 %37 to i64, !dbg !297
  %39 = getelementptr inbounds nuw float, ptr %2, i64 %38, !dbg !297
  store float %30, ptr %39, align 4, !dbg !298, !tbaa !30
  %40 = getelementptr inbounds nuw i8, ptr %39, i64 4, !dbg !299
  store float %31, ptr %40, align 4, !dbg !300, !tbaa !30
  ret void, !dbg !301
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 0, 2147483647) i32 @llvm.nvvm.read.ptx.sreg.ctaid.x() #6

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 1, 1025) i32 @llvm.nvvm.read.ptx.sreg.ntid.x() #6

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare noundef range(i32 1, -2147483648) i32 @llvm.nvvm.read.ptx.sreg.nctaid.x() #6

; Function Attrs: convergent nocallback nounwind memory(inaccessiblemem: readwrite)
declare float @llvm.nvvm.shfl.sync.bfly.f32(i32, float, i32, i32) #4

; Function Attrs: nocallback nounwind memory(argmem: readwrite)
declare void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) noalias writeonly, ptr addrspace(1) noalias readonly) #8

; Function Attrs: nounwind
declare void @llvm.nvvm.cp.async.commit.group() #7

attributes #0 = { mustprogress nofree noinline norecurse nosync nounwind memory(argmem: readwrite) "frame-pointer"="all" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="sm_80" "target-features"="+ptx88,+sm_80" "uniform-work-group-size"="true" }
attributes #1 = { convergent mustprogress noinline norecurse nounwind "frame-pointer"="all" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="sm_80" "target-features"="+ptx88,+sm_80" "uniform-work-group-size"="true" }
attributes #2 = { convergent nocallback nounwind }
attributes #3 = { convergent mustprogress noinline norecurse nounwind memory(argmem: readwrite, inaccessiblemem: readwrite) "frame-pointer"="all" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="sm_80" "target-features"="+ptx88,+sm_80" "uniform-work-group-size"="true" }
attributes #4 = { convergent nocallback nounwind memory(inaccessiblemem: readwrite) }
attributes #5 = { mustprogress nocallback nocreateundeforpoison nofree nosync nounwind speculatable willreturn memory(none) }
attributes #6 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #7 = { nounwind }
attributes #8 = { nocallback nounwind memory(argmem: readwrite) }
attributes #9 = { convergent nounwind }

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3, !4, !5, !6}
!llvm.ident = !{!7}
!llvm.errno.tbaa = !{!8}

!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !1, producer: "Debian clang version 22.1.8 (1~deb12u1)", isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly, splitDebugInlining: false, nameTableKind: None)
!1 = !DIFile(filename: "kernels.cu", directory: ".")
!2 = !{i32 7, !"Dwarf Version", i32 2}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = !{i32 1, !"wchar_size", i32 4}
!5 = !{i32 4, !"nvvm-reflect-ftz", i32 0}
!6 = !{i32 7, !"frame-pointer", i32 2}
!7 = !{!"Debian clang version 22.1.8 (1~deb12u1)"}
!8 = !{!9, !9, i64 0}
!9 = !{!"int", !10, i64 0}
!10 = !{!"omnipotent char", !11, i64 0}
!11 = !{!"Simple C++ TBAA"}
!12 = distinct !DISubprogram(name: "vector_add", scope: !1, file: !1, line: 18, type: !13, scopeLine: 18, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!13 = !DISubroutineType(types: !14)
!14 = !{}
!15 = !DILocation(line: 13, column: 29, scope: !16, inlinedAt: !17)
!16 = distinct !DISubprogram(name: "block", scope: !1, file: !1, line: 13, type: !13, scopeLine: 13, flags: DIFlagPrototyped, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!17 = distinct !DILocation(line: 19, column: 16, scope: !12)
!18 = !DILocation(line: 14, column: 31, scope: !19, inlinedAt: !20)
!19 = distinct !DISubprogram(name: "threads", scope: !1, file: !1, line: 14, type: !13, scopeLine: 14, flags: DIFlagPrototyped, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!20 = distinct !DILocation(line: 19, column: 26, scope: !12)
!21 = !DILocation(line: 19, column: 24, scope: !12)
!22 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !24)
!23 = distinct !DISubprogram(name: "thread", scope: !1, file: !1, line: 12, type: !13, scopeLine: 12, flags: DIFlagPrototyped, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!24 = distinct !DILocation(line: 19, column: 38, scope: !12)
!25 = !DILocation(line: 19, column: 36, scope: !12)
!26 = !DILocation(line: 19, column: 50, scope: !12)
!27 = !DILocation(line: 19, column: 3, scope: !12)
!28 = !DILocation(line: 22, column: 1, scope: !12)
!29 = !DILocation(line: 21, column: 12, scope: !12)
!30 = !{!31, !31, i64 0}
!31 = !{!"float", !10, i64 0}
!32 = !DILocation(line: 21, column: 19, scope: !12)
!33 = !DILocation(line: 21, column: 17, scope: !12)
!34 = !DILocation(line: 21, column: 5, scope: !12)
!35 = !DILocation(line: 21, column: 10, scope: !12)
!36 = !DILocation(line: 20, column: 10, scope: !12)
!37 = distinct !{!37, !27, !38, !39, !40}
!38 = !DILocation(line: 21, column: 22, scope: !12)
!39 = !{!"llvm.loop.mustprogress"}
!40 = !{!"llvm.loop.unroll.disable"}
!41 = distinct !DISubprogram(name: "row_sum", scope: !1, file: !1, line: 32, type: !13, scopeLine: 32, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!42 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !43)
!43 = distinct !DILocation(line: 35, column: 16, scope: !41)
!44 = !DILocation(line: 35, column: 28, scope: !41)
!45 = !DILocation(line: 35, column: 3, scope: !41)
!46 = !DILocation(line: 25, column: 3, scope: !47, inlinedAt: !48)
!47 = distinct !DISubprogram(name: "warp_sum", scope: !1, file: !1, line: 24, type: !13, scopeLine: 24, flags: DIFlagPrototyped, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!48 = distinct !DILocation(line: 37, column: 9, scope: !41)
!49 = !DILocation(line: 26, column: 10, scope: !47, inlinedAt: !48)
!50 = !DILocation(line: 26, column: 7, scope: !47, inlinedAt: !48)
!51 = !DILocation(line: 25, column: 29, scope: !47, inlinedAt: !48)
!52 = !DILocation(line: 25, column: 22, scope: !47, inlinedAt: !48)
!53 = distinct !{!53, !46, !54, !39, !40}
!54 = !DILocation(line: 26, column: 50, scope: !47, inlinedAt: !48)
!55 = !DILocation(line: 38, column: 16, scope: !41)
!56 = !DILocation(line: 38, column: 21, scope: !41)
!57 = !DILocation(line: 36, column: 26, scope: !41)
!58 = !DILocation(line: 36, column: 12, scope: !41)
!59 = !DILocation(line: 36, column: 9, scope: !41)
!60 = !DILocation(line: 35, column: 35, scope: !41)
!61 = distinct !{!61, !45, !62, !39, !40}
!62 = !DILocation(line: 36, column: 29, scope: !41)
!63 = !DILocation(line: 39, column: 19, scope: !41)
!64 = !DILocation(line: 39, column: 5, scope: !41)
!65 = !DILocation(line: 39, column: 25, scope: !41)
!66 = !DILocation(line: 40, column: 3, scope: !41)
!67 = !DILocation(line: 41, column: 16, scope: !41)
!68 = !DILocation(line: 14, column: 31, scope: !19, inlinedAt: !69)
!69 = distinct !DILocation(line: 42, column: 31, scope: !41)
!70 = !DILocation(line: 42, column: 41, scope: !41)
!71 = !DILocation(line: 42, column: 29, scope: !41)
!72 = !DILocation(line: 42, column: 20, scope: !41)
!73 = !DILocation(line: 42, column: 48, scope: !41)
!74 = !DILocation(line: 25, column: 3, scope: !47, inlinedAt: !75)
!75 = distinct !DILocation(line: 42, column: 11, scope: !41)
!76 = !DILocation(line: 26, column: 10, scope: !47, inlinedAt: !75)
!77 = !DILocation(line: 26, column: 7, scope: !47, inlinedAt: !75)
!78 = !DILocation(line: 25, column: 29, scope: !47, inlinedAt: !75)
!79 = !DILocation(line: 25, column: 22, scope: !47, inlinedAt: !75)
!80 = distinct !{!80, !74, !81, !39, !40}
!81 = !DILocation(line: 26, column: 50, scope: !47, inlinedAt: !75)
!82 = !DILocation(line: 43, column: 18, scope: !41)
!83 = !DILocation(line: 13, column: 29, scope: !16, inlinedAt: !84)
!84 = distinct !DILocation(line: 44, column: 11, scope: !41)
!85 = !DILocation(line: 44, column: 7, scope: !41)
!86 = !DILocation(line: 44, column: 20, scope: !41)
!87 = !DILocation(line: 46, column: 1, scope: !41)
!88 = distinct !DISubprogram(name: "histogram", scope: !1, file: !1, line: 50, type: !13, scopeLine: 50, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!89 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !90)
!90 = distinct !DILocation(line: 52, column: 7, scope: !88)
!91 = !DILocation(line: 52, column: 16, scope: !88)
!92 = !DILocation(line: 53, column: 5, scope: !88)
!93 = !DILocation(line: 53, column: 19, scope: !88)
!94 = !DILocation(line: 54, column: 3, scope: !88)
!95 = !DILocation(line: 13, column: 29, scope: !16, inlinedAt: !96)
!96 = distinct !DILocation(line: 55, column: 16, scope: !88)
!97 = !DILocation(line: 14, column: 31, scope: !19, inlinedAt: !98)
!98 = distinct !DILocation(line: 55, column: 26, scope: !88)
!99 = !DILocation(line: 55, column: 24, scope: !88)
!100 = !DILocation(line: 55, column: 36, scope: !88)
!101 = !DILocation(line: 55, column: 50, scope: !88)
!102 = !DILocation(line: 55, column: 3, scope: !88)
!103 = !DILocation(line: 58, column: 3, scope: !88)
!104 = !DILocation(line: 59, column: 16, scope: !88)
!105 = !DILocation(line: 57, column: 32, scope: !88)
!106 = !DILocation(line: 57, column: 37, scope: !88)
!107 = !DILocation(line: 57, column: 28, scope: !88)
!108 = !DILocation(line: 57, column: 5, scope: !88)
!109 = !DILocation(line: 56, column: 10, scope: !88)
!110 = distinct !{!110, !102, !111, !39, !40}
!111 = !DILocation(line: 57, column: 45, scope: !88)
!112 = !DILocation(line: 60, column: 28, scope: !88)
!113 = !DILocation(line: 60, column: 46, scope: !88)
!114 = !DILocation(line: 60, column: 5, scope: !88)
!115 = !DILocation(line: 61, column: 1, scope: !88)
!116 = distinct !DISubprogram(name: "ranks", scope: !1, file: !1, line: 65, type: !13, scopeLine: 65, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!117 = !DILocation(line: 13, column: 29, scope: !16, inlinedAt: !118)
!118 = distinct !DILocation(line: 66, column: 11, scope: !116)
!119 = !DILocation(line: 14, column: 31, scope: !19, inlinedAt: !120)
!120 = distinct !DILocation(line: 66, column: 21, scope: !116)
!121 = !DILocation(line: 66, column: 19, scope: !116)
!122 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !123)
!123 = distinct !DILocation(line: 66, column: 33, scope: !116)
!124 = !DILocation(line: 66, column: 31, scope: !116)
!125 = !DILocation(line: 67, column: 49, scope: !116)
!126 = !DILocation(line: 67, column: 54, scope: !116)
!127 = !DILocation(line: 67, column: 19, scope: !116)
!128 = !DILocation(line: 68, column: 55, scope: !116)
!129 = !DILocation(line: 68, column: 61, scope: !116)
!130 = !DILocation(line: 68, column: 36, scope: !116)
!131 = !DILocation(line: 68, column: 12, scope: !116)
!132 = !DILocation(line: 68, column: 3, scope: !116)
!133 = !DILocation(line: 68, column: 10, scope: !116)
!134 = !DILocation(line: 69, column: 1, scope: !116)
!135 = distinct !DISubprogram(name: "tiled_matmul", scope: !1, file: !1, line: 72, type: !13, scopeLine: 72, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!136 = !DILocation(line: 74, column: 11, scope: !135)
!137 = !DILocation(line: 74, column: 45, scope: !135)
!138 = !DILocation(line: 75, column: 13, scope: !135)
!139 = !DILocation(line: 75, column: 44, scope: !135)
!140 = !DILocation(line: 75, column: 49, scope: !135)
!141 = !DILocation(line: 13, column: 29, scope: !16, inlinedAt: !142)
!142 = distinct !DILocation(line: 75, column: 63, scope: !135)
!143 = !DILocation(line: 75, column: 71, scope: !135)
!144 = !DILocation(line: 75, column: 76, scope: !135)
!145 = !DILocation(line: 77, column: 21, scope: !135)
!146 = !DILocation(line: 77, column: 3, scope: !135)
!147 = !DILocation(line: 76, column: 9, scope: !135)
!148 = !DILocation(line: 85, column: 9, scope: !135)
!149 = !DILocation(line: 85, column: 13, scope: !135)
!150 = !DILocation(line: 85, column: 3, scope: !135)
!151 = !DILocation(line: 85, column: 23, scope: !135)
!152 = !DILocation(line: 86, column: 1, scope: !135)
!153 = !DILocation(line: 78, column: 32, scope: !135)
!154 = !DILocation(line: 78, column: 18, scope: !135)
!155 = !DILocation(line: 78, column: 16, scope: !135)
!156 = !DILocation(line: 79, column: 24, scope: !135)
!157 = !DILocation(line: 79, column: 29, scope: !135)
!158 = !DILocation(line: 79, column: 33, scope: !135)
!159 = !DILocation(line: 79, column: 19, scope: !135)
!160 = !DILocation(line: 79, column: 17, scope: !135)
!161 = !DILocation(line: 80, column: 5, scope: !135)
!162 = !DILocation(line: 81, column: 5, scope: !135)
!163 = !DILocation(line: 83, column: 5, scope: !135)
!164 = !DILocation(line: 77, column: 28, scope: !135)
!165 = distinct !{!165, !146, !166, !39, !40}
!166 = !DILocation(line: 84, column: 3, scope: !135)
!167 = !DILocation(line: 82, column: 28, scope: !135)
!168 = !DILocation(line: 82, column: 40, scope: !135)
!169 = !DILocation(line: 82, column: 13, scope: !135)
!170 = !DILocation(line: 81, column: 29, scope: !135)
!171 = !DILocation(line: 81, column: 23, scope: !135)
!172 = distinct !{!172, !162, !173, !39, !40}
!173 = !DILocation(line: 82, column: 56, scope: !135)
!174 = distinct !DISubprogram(name: "racing_matmul", scope: !1, file: !1, line: 89, type: !13, scopeLine: 89, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!175 = !DILocation(line: 91, column: 11, scope: !174)
!176 = !DILocation(line: 91, column: 45, scope: !174)
!177 = !DILocation(line: 92, column: 13, scope: !174)
!178 = !DILocation(line: 92, column: 44, scope: !174)
!179 = !DILocation(line: 92, column: 49, scope: !174)
!180 = !DILocation(line: 13, column: 29, scope: !16, inlinedAt: !181)
!181 = distinct !DILocation(line: 92, column: 63, scope: !174)
!182 = !DILocation(line: 92, column: 71, scope: !174)
!183 = !DILocation(line: 92, column: 76, scope: !174)
!184 = !DILocation(line: 94, column: 21, scope: !174)
!185 = !DILocation(line: 94, column: 3, scope: !174)
!186 = !DILocation(line: 93, column: 9, scope: !174)
!187 = !DILocation(line: 101, column: 9, scope: !174)
!188 = !DILocation(line: 101, column: 13, scope: !174)
!189 = !DILocation(line: 101, column: 3, scope: !174)
!190 = !DILocation(line: 101, column: 23, scope: !174)
!191 = !DILocation(line: 102, column: 1, scope: !174)
!192 = !DILocation(line: 95, column: 32, scope: !174)
!193 = !DILocation(line: 95, column: 18, scope: !174)
!194 = !DILocation(line: 95, column: 16, scope: !174)
!195 = !DILocation(line: 96, column: 24, scope: !174)
!196 = !DILocation(line: 96, column: 29, scope: !174)
!197 = !DILocation(line: 96, column: 33, scope: !174)
!198 = !DILocation(line: 96, column: 19, scope: !174)
!199 = !DILocation(line: 96, column: 17, scope: !174)
!200 = !DILocation(line: 97, column: 5, scope: !174)
!201 = !DILocation(line: 98, column: 5, scope: !174)
!202 = !DILocation(line: 94, column: 28, scope: !174)
!203 = distinct !{!203, !185, !204, !39, !40}
!204 = !DILocation(line: 100, column: 3, scope: !174)
!205 = !DILocation(line: 99, column: 28, scope: !174)
!206 = !DILocation(line: 99, column: 40, scope: !174)
!207 = !DILocation(line: 99, column: 13, scope: !174)
!208 = !DILocation(line: 98, column: 29, scope: !174)
!209 = !DILocation(line: 98, column: 23, scope: !174)
!210 = distinct !{!210, !201, !211, !39, !40}
!211 = !DILocation(line: 99, column: 56, scope: !174)
!212 = distinct !DISubprogram(name: "pipelined_copy", scope: !1, file: !1, line: 106, type: !13, scopeLine: 106, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!213 = !DILocation(line: 14, column: 31, scope: !19, inlinedAt: !214)
!214 = distinct !DILocation(line: 108, column: 14, scope: !212)
!215 = !DILocation(line: 108, column: 24, scope: !212)
!216 = !DILocation(line: 108, column: 39, scope: !212)
!217 = !DILocation(line: 110, column: 11, scope: !218, inlinedAt: !219)
!218 = distinct !DISubprogram(name: "operator()", scope: !1, file: !1, line: 109, type: !13, scopeLine: 109, flags: DIFlagPrototyped, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!219 = distinct !DILocation(line: 116, column: 3, scope: !212)
!220 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !221)
!221 = distinct !DILocation(line: 112, column: 67, scope: !218, inlinedAt: !219)
!222 = !DILocation(line: 112, column: 76, scope: !218, inlinedAt: !219)
!223 = !DILocation(line: 112, column: 54, scope: !218, inlinedAt: !219)
!224 = !DILocation(line: 112, column: 53, scope: !218, inlinedAt: !219)
!225 = !DILocation(line: 113, column: 60, scope: !218, inlinedAt: !219)
!226 = !DILocation(line: 113, column: 59, scope: !218, inlinedAt: !219)
!227 = !DILocation(line: 111, column: 7, scope: !218, inlinedAt: !219)
!228 = !DILocation(line: 114, column: 5, scope: !218, inlinedAt: !219)
!229 = !DILocation(line: 110, column: 11, scope: !218, inlinedAt: !230)
!230 = distinct !DILocation(line: 117, column: 3, scope: !212)
!231 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !232)
!232 = distinct !DILocation(line: 112, column: 67, scope: !218, inlinedAt: !230)
!233 = !DILocation(line: 112, column: 76, scope: !218, inlinedAt: !230)
!234 = !DILocation(line: 112, column: 54, scope: !218, inlinedAt: !230)
!235 = !DILocation(line: 112, column: 53, scope: !218, inlinedAt: !230)
!236 = !DILocation(line: 113, column: 71, scope: !218, inlinedAt: !230)
!237 = !DILocation(line: 113, column: 60, scope: !218, inlinedAt: !230)
!238 = !DILocation(line: 113, column: 59, scope: !218, inlinedAt: !230)
!239 = !DILocation(line: 111, column: 7, scope: !218, inlinedAt: !230)
!240 = !DILocation(line: 114, column: 5, scope: !218, inlinedAt: !230)
!241 = !DILocation(line: 118, column: 21, scope: !212)
!242 = !DILocation(line: 118, column: 3, scope: !212)
!243 = !DILocation(line: 127, column: 1, scope: !212)
!244 = !DILocation(line: 119, column: 5, scope: !212)
!245 = !DILocation(line: 120, column: 5, scope: !212)
!246 = !DILocation(line: 121, column: 13, scope: !212)
!247 = !DILocation(line: 110, column: 11, scope: !218, inlinedAt: !248)
!248 = distinct !DILocation(line: 121, column: 5, scope: !212)
!249 = !DILocation(line: 112, column: 62, scope: !218, inlinedAt: !248)
!250 = !DILocation(line: 112, column: 54, scope: !218, inlinedAt: !248)
!251 = !DILocation(line: 112, column: 53, scope: !218, inlinedAt: !248)
!252 = !DILocation(line: 113, column: 64, scope: !218, inlinedAt: !248)
!253 = !DILocation(line: 113, column: 71, scope: !218, inlinedAt: !248)
!254 = !DILocation(line: 113, column: 60, scope: !218, inlinedAt: !248)
!255 = !DILocation(line: 113, column: 59, scope: !218, inlinedAt: !248)
!256 = !DILocation(line: 111, column: 7, scope: !218, inlinedAt: !248)
!257 = !DILocation(line: 114, column: 5, scope: !218, inlinedAt: !248)
!258 = !DILocation(line: 123, column: 32, scope: !212)
!259 = !DILocation(line: 124, column: 5, scope: !212)
!260 = !DILocation(line: 118, column: 30, scope: !212)
!261 = distinct !{!261, !242, !262, !39, !40}
!262 = !DILocation(line: 126, column: 3, scope: !212)
!263 = !DILocation(line: 125, column: 66, scope: !212)
!264 = !DILocation(line: 125, column: 43, scope: !212)
!265 = !DILocation(line: 125, column: 41, scope: !212)
!266 = !DILocation(line: 125, column: 32, scope: !212)
!267 = !DILocation(line: 125, column: 7, scope: !212)
!268 = !DILocation(line: 125, column: 37, scope: !212)
!269 = !DILocation(line: 124, column: 28, scope: !212)
!270 = !DILocation(line: 124, column: 23, scope: !212)
!271 = distinct !{!271, !259, !272, !39, !40}
!272 = !DILocation(line: 125, column: 69, scope: !212)
!273 = distinct !DISubprogram(name: "one_mma", scope: !1, file: !1, line: 131, type: !13, scopeLine: 131, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!274 = !DILocation(line: 12, column: 30, scope: !23, inlinedAt: !275)
!275 = distinct !DILocation(line: 132, column: 14, scope: !273)
!276 = !DILocation(line: 132, column: 54, scope: !273)
!277 = !DILocation(line: 133, column: 25, scope: !273)
!278 = !DILocation(line: 133, column: 29, scope: !273)
!279 = !DILocation(line: 133, column: 17, scope: !273)
!280 = !DILocation(line: 133, column: 57, scope: !273)
!281 = !DILocation(line: 133, column: 61, scope: !273)
!282 = !DILocation(line: 133, column: 43, scope: !273)
!283 = !DILocation(line: 134, column: 36, scope: !273)
!284 = !DILocation(line: 134, column: 17, scope: !273)
!285 = !DILocation(line: 134, column: 47, scope: !273)
!286 = !DILocation(line: 135, column: 17, scope: !273)
!287 = !DILocation(line: 135, column: 43, scope: !273)
!288 = !DILocation(line: 137, column: 3, scope: !273)
!289 = !{i64 5152, i64 5165, i64 5188, i64 5221, i64 5352}
!290 = !DILocation(line: 146, column: 19, scope: !273)
!291 = !DILocation(line: 146, column: 15, scope: !273)
!292 = !DILocation(line: 146, column: 3, scope: !273)
!293 = !DILocation(line: 146, column: 27, scope: !273)
!294 = !DILocation(line: 147, column: 3, scope: !273)
!295 = !DILocation(line: 147, column: 31, scope: !273)
!296 = !DILocation(line: 148, column: 21, scope: !273)
!297 = !DILocation(line: 148, column: 3, scope: !273)
!298 = !DILocation(line: 148, column: 33, scope: !273)
!299 = !DILocation(line: 149, column: 3, scope: !273)
!300 = !DILocation(line: 149, column: 37, scope: !273)
!301 = !DILocation(line: 150, column: 1, scope: !273)
