declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)
declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)

; threads, state, no process, and what starts the threads: here the host, which has them call plica_worker
@plica.live = internal global [512 x i8] zeroinitializer, align 64
@plica.made = internal global { i64, ptr, i64, ptr } { i64 0, ptr @plica.live, i64 0, ptr @plica.pool.start }, align 8
@plica.pool = internal global ptr null, align 8

define void @plica_threads(i32 %count) nounwind {
  %many = zext i32 %count to i64
  store i64 %many, ptr @plica.made, align 8
  %one = icmp ult i32 %count, 2
  %pool = select i1 %one, ptr null, ptr @plica.made
  store atomic ptr %pool, ptr @plica.pool release, align 8
  ret void
}

define void @plica_worker() nounwind {
  %none = call ptr @plica.pool.worker(ptr @plica.live)
  ret void
}

define internal void @plica.pool.start(ptr %live, i64 %threads) noinline nounwind {
  ret void
}

