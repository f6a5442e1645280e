declare i32 @clock_gettime(i32, ptr)

@plica.notes = internal global ptr null, align 8

define hidden void @<USE>(ptr %notes) nounwind {
  store atomic ptr %notes, ptr @plica.notes release, align 8
  ret void
}

define internal void @plica.tick(i64 %launch) nounwind {
entry:
  %notes = load atomic ptr, ptr @plica.notes acquire, align 8
  %none = icmp eq ptr %notes, null
  br i1 %none, label %end, label %note
note:
  %time = alloca [2 x i64], align 8
  %code = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %at, align 8
  %big = mul i64 %seconds, 1000000000
  %now = add i64 %big, %rest
  %then = load i64, ptr %notes, align 8
  %spent = sub i64 %now, %then
  store i64 %now, ptr %notes, align 8
  %begins = icmp eq i64 %launch, -1
  br i1 %begins, label %end, label %add
add:
  %twice = mul i64 %launch, 2
  %first = add i64 %twice, 1
  %second = add i64 %twice, 2
  %total = getelementptr i64, ptr %notes, i64 %first
  %old = load i64, ptr %total, align 8
  %new = add i64 %old, %spent
  store i64 %new, ptr %total, align 8
  %count = getelementptr i64, ptr %notes, i64 %second
  %was = load i64, ptr %count, align 8
  %is = add i64 %was, 1
  store i64 %is, ptr %count, align 8
  br label %end
end:
  ret void
}
