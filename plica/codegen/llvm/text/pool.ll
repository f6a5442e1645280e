declare ptr @calloc(i64, i64)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @getpid()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)

@plica.pool = internal global ptr null, align 8

; threads, state, the process if the state is not cleared in a child, and what starts the threads:
; they run in the code that made the pool, which is never given back
define hidden ptr @<MAKE>(i64 %threads) nounwind {
  %pool = call ptr @calloc(i64 4, i64 8)
  %live = call ptr @mmap(ptr null, i64 65536, i32 3, i32 34, i32 -1, i64 0)
  %address = ptrtoint ptr %live to i64
  %bad = icmp eq i64 %address, -1
  br i1 %bad, label %none, label %some
none:
  ret ptr null
some:
  %kept = call i32 @madvise(ptr %live, i64 65536, i32 18)
  %cleared = icmp eq i32 %kept, 0
  %here = call i32 @getpid()
  %wide = sext i32 %here to i64
  %owner = select i1 %cleared, i64 0, i64 %wide
  store i64 %threads, ptr %pool, align 8
  %p1 = getelementptr i8, ptr %pool, i64 8
  store ptr %live, ptr %p1, align 8
  %p2 = getelementptr i8, ptr %pool, i64 16
  store i64 %owner, ptr %p2, align 8
  %p3 = getelementptr i8, ptr %pool, i64 24
  store ptr @plica.pool.start, ptr %p3, align 8
  ret ptr %pool
}

define hidden void @<USE>(ptr %pool) nounwind {
  store atomic ptr %pool, ptr @plica.pool release, align 8
  ret void
}

; workers take no signals: those are for the threads of the program
define internal void @plica.pool.start(ptr %live, i64 %threads) noinline nounwind {
entry:
  %all = alloca [16 x i64], align 8
  %old = alloca [16 x i64], align 8
  %thread = alloca i64, align 8
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  %m0 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %check
check:
  %number = phi i64 [ 1, %entry ], [ %next, %made ]
  %more = icmp slt i64 %number, %threads
  br i1 %more, label %make, label %end
make:
  %code = call i32 @pthread_create(ptr %thread, ptr null, ptr @plica.pool.worker, ptr %live)
  %good = icmp eq i32 %code, 0
  br i1 %good, label %made, label %end
made:
  %id = load i64, ptr %thread, align 8
  %d0 = call i32 @pthread_detach(i64 %id)
  %next = add i64 %number, 1
  br label %check
end:
  %m1 = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}
