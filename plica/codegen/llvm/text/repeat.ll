declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i64 @<REPEAT>(ptr %frame) nounwind {
entry:
  %code = load ptr, ptr %frame, align 8
  %second = getelementptr i64, ptr %frame, i64 1
  %registers = load ptr, ptr %second, align 8
  %third = getelementptr i64, ptr %frame, i64 2
  %tables = load ptr, ptr %third, align 8
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after.call, %called ], [ %after, %exchange ], [ %after, %copy ], [ %a, %jump ], [ %to, %unless ]
  %word = getelementptr i64, ptr %code, i64 %at
  %kind = load i64, ptr %word, align 8
  %word.a = getelementptr i64, ptr %word, i64 1
  %a = load i64, ptr %word.a, align 8
  %word.b = getelementptr i64, ptr %word, i64 2
  %b = load i64, ptr %word.b, align 8
  %word.c = getelementptr i64, ptr %word, i64 3
  %c = load i64, ptr %word.c, align 8
  %after = add i64 %at, 4
  switch i64 %kind, label %end [
    i64 1, label %call
    i64 2, label %exchange
    i64 3, label %copy
    i64 4, label %jump
    i64 5, label %unless
  ]
call:
  %table = getelementptr i64, ptr %tables, i64 %b
  %given = getelementptr i64, ptr %word, i64 4
  br label %fill
fill:
  %n = phi i64 [ 0, %call ], [ %n.next, %put ]
  %more = icmp ult i64 %n, %c
  br i1 %more, label %put, label %filled
put:
  %number.at = getelementptr i64, ptr %given, i64 %n
  %number = load i64, ptr %number.at, align 8
  %register = getelementptr i64, ptr %registers, i64 %number
  %address = load i64, ptr %register, align 8
  %entry.at = getelementptr i64, ptr %table, i64 %n
  store i64 %address, ptr %entry.at, align 8
  %n.next = add i64 %n, 1
  br label %fill
filled:
  %function = inttoptr i64 %a to ptr
  %failed = call i64 %function(ptr %table)
  %after.call = add i64 %after, %c
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %fail, label %called
called:
  br label %next
fail:
  %fourth = getelementptr i64, ptr %frame, i64 3
  store i64 %at, ptr %fourth, align 8
  ret i64 %failed
exchange:
  %left.at = getelementptr i64, ptr %registers, i64 %a
  %right.at = getelementptr i64, ptr %registers, i64 %b
  %left = load i64, ptr %left.at, align 8
  %right = load i64, ptr %right.at, align 8
  store i64 %right, ptr %left.at, align 8
  store i64 %left, ptr %right.at, align 8
  br label %next
copy:
  %target.at = getelementptr i64, ptr %registers, i64 %b
  %target = load ptr, ptr %target.at, align 8
  %source.at = getelementptr i64, ptr %registers, i64 %c
  %source = load ptr, ptr %source.at, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %a, i1 false)
  br label %next
jump:
  br label %next
unless:
  %held.at = getelementptr i64, ptr %registers, i64 %a
  %held = load ptr, ptr %held.at, align 8
  %byte = load i8, ptr %held, align 1
  %false = icmp eq i8 %byte, 0
  %to = select i1 %false, i64 %b, i64 %after
  br label %next
end:
  ret i64 0
}
