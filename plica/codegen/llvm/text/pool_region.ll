define hidden void @<PARALLEL>(ptr %body, ptr %env, i64 %count) nounwind {
entry:
  %pool = load atomic ptr, ptr @plica.pool acquire, align 8
  %no_pool = icmp eq ptr %pool, null
  %few = icmp slt i64 %count, 2
  %no = or i1 %no_pool, %few
  br i1 %no, label %alone, label %look
look:
  %threads = load i64, ptr %pool, align 8
  %p1 = getelementptr i8, ptr %pool, i64 8
  %live = load ptr, ptr %p1, align 8
  %p2 = getelementptr i8, ptr %pool, i64 16
  %owner = load i64, ptr %p2, align 8
  %sure = icmp eq i64 %owner, 0
  br i1 %sure, label %take, label %ask
ask:
  <HERE>
  %wide = sext i32 %here to i64
  %same = icmp eq i64 %wide, %owner
  br i1 %same, label %take, label %alone
take:
  %busy = getelementptr i8, ptr %live, i64 <AT_BUSY>
  %was = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic, align 8
  %mine = extractvalue { i64, i1 } %was, 1
  br i1 %mine, label %begin, label %alone
begin:
  %flag = getelementptr i8, ptr %live, i64 <AT_STARTED>
  %started = load i64, ptr %flag, align 8
  %new = icmp eq i64 %started, 0
  br i1 %new, label %start, label %close
start:
  store i64 1, ptr %flag, align 8
  %p3 = getelementptr i8, ptr %pool, i64 24
  %starting = load ptr, ptr %p3, align 8
  call void %starting(ptr %live, i64 %threads)
  br label %close
close:
  %ticket = getelementptr i8, ptr %live, i64 <AT_TICKET>
  %old = load atomic i64, ptr %ticket monotonic, align 8
  %old_generation = lshr i64 %old, 32
  %odd = add i64 %old_generation, 1
  %odd_high = shl i64 %odd, 32
  %closed = or i64 %odd_high, 4294967295
  store atomic i64 %closed, ptr %ticket seq_cst, align 8
  %most = mul i64 %threads, <PER_THREAD>
  %beyond = icmp sgt i64 %count, %most
  %chunks = select i1 %beyond, i64 %most, i64 %count
  %size = sdiv i64 %count, %chunks
  %longer = srem i64 %count, %chunks
  %at_body = getelementptr i8, ptr %live, i64 <AT_BODY>
  store atomic ptr %body, ptr %at_body release, align 8
  %at_env = getelementptr i8, ptr %live, i64 <AT_ENV>
  store atomic ptr %env, ptr %at_env release, align 8
  %at_longer = getelementptr i8, ptr %live, i64 <AT_LONGER>
  store atomic i64 %longer, ptr %at_longer release, align 8
  %at_size = getelementptr i8, ptr %live, i64 <AT_SIZE>
  store atomic i64 %size, ptr %at_size release, align 8
  %at_chunks = getelementptr i8, ptr %live, i64 <AT_CHUNKS>
  store atomic i64 %chunks, ptr %at_chunks release, align 8
  %done = getelementptr i8, ptr %live, i64 <AT_DONE>
  store atomic i64 0, ptr %done release, align 8
  %even = add i64 %odd, 1
  %open = shl i64 %even, 32
  store atomic i64 %open, ptr %ticket seq_cst, align 8
  %at_sleepers = getelementptr i8, ptr %live, i64 <AT_SLEEPERS>
  %sleepers = load atomic i64, ptr %at_sleepers seq_cst, align 8
  %asleep = icmp sgt i64 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  %word = getelementptr i8, ptr %live, i64 <AT_GENERATION>
  %others = sub i64 %chunks, 1
  <WAKE>
  br label %work
work:
  %generation = call i64 @plica.pool.work(ptr %live, i64 1)
  br label %wait
wait:
  %turn = phi i64 [ 0, %work ], [ %next, %again ]
  %finished = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %finished, %chunks
  br i1 %all, label %end, label %pause
pause:
  <PAUSE>
  %next = add i64 %turn, 1
  %long = icmp sgt i64 %turn, <SPIN>
  br i1 %long, label %yield, label %again
yield:
  <YIELD>
  br label %again
again:
  br label %wait
end:
  store atomic i64 0, ptr %busy release, align 8
  ret void
alone:
  call void %body(ptr %env, i64 0, i64 %count)
  ret void
}

; claim chunks until none is left, those of a step of 1 from the first on, others from the last back;
; the generation in which there was none
define internal i64 @plica.pool.work(ptr %live, i64 %step) noinline nounwind {
entry:
  %ticket = getelementptr i8, ptr %live, i64 <AT_TICKET>
  %at_body = getelementptr i8, ptr %live, i64 <AT_BODY>
  %at_env = getelementptr i8, ptr %live, i64 <AT_ENV>
  %at_longer = getelementptr i8, ptr %live, i64 <AT_LONGER>
  %at_size = getelementptr i8, ptr %live, i64 <AT_SIZE>
  %at_chunks = getelementptr i8, ptr %live, i64 <AT_CHUNKS>
  %done = getelementptr i8, ptr %live, i64 <AT_DONE>
  br label %look
look:
  %seen = load atomic i64, ptr %ticket acquire, align 8
  %front = and i64 %seen, 65535
  %high = lshr i64 %seen, 16
  %back = and i64 %high, 65535
  %claimed = add i64 %front, %back
  %chunks = load atomic i64, ptr %at_chunks acquire, align 8
  %some = icmp ult i64 %claimed, %chunks
  br i1 %some, label %claim, label %none
claim:
  %body = load atomic ptr, ptr %at_body acquire, align 8
  %env = load atomic ptr, ptr %at_env acquire, align 8
  %longer = load atomic i64, ptr %at_longer acquire, align 8
  %size = load atomic i64, ptr %at_size acquire, align 8
  %after = add i64 %seen, %step
  %was = cmpxchg ptr %ticket, i64 %seen, i64 %after acq_rel monotonic, align 8
  %mine = extractvalue { i64, i1 } %was, 1
  br i1 %mine, label %run, label %look
run:
  %behind = sub i64 %chunks, %back
  %last = sub i64 %behind, 1
  %first = icmp eq i64 %step, 1
  %number = select i1 %first, i64 %front, i64 %last
  %even = mul i64 %number, %size
  %long = icmp slt i64 %number, %longer
  %more = select i1 %long, i64 %number, i64 %longer
  %begin = add i64 %even, %more
  %one = zext i1 %long to i64
  %length = add i64 %size, %one
  %end = add i64 %begin, %length
  call void %body(ptr %env, i64 %begin, i64 %end)
  %before = atomicrmw add ptr %done, i64 1 acq_rel, align 8
  br label %look
none:
  %generation = lshr i64 %seen, 32
  ret i64 %generation
}

define internal ptr @plica.pool.worker(ptr %live) nounwind {
entry:
  %ticket = getelementptr i8, ptr %live, i64 <AT_TICKET>
  %word = getelementptr i8, ptr %live, i64 <AT_GENERATION>
  %sleepers = getelementptr i8, ptr %live, i64 <AT_SLEEPERS>
  br label %work
work:
  %generation = call i64 @plica.pool.work(ptr %live, i64 65536)
  br label %spin
spin:
  %turn = phi i64 [ 0, %work ], [ %next, %more ]
  %now = load atomic i64, ptr %ticket acquire, align 8
  %current = lshr i64 %now, 32
  %changed = icmp ne i64 %current, %generation
  br i1 %changed, label %work, label %pause
pause:
  <PAUSE>
  %next = add i64 %turn, 1
  %long = icmp sgt i64 %next, <SPIN>
  br i1 %long, label %sleep, label %more
more:
  br label %spin
sleep:
  %s0 = atomicrmw add ptr %sleepers, i64 1 seq_cst, align 8
  <SLEEP>
  %s1 = atomicrmw sub ptr %sleepers, i64 1 seq_cst, align 8
  br label %work
}

