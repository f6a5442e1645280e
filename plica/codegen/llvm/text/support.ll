declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare ptr @llvm.stacksave.p0()
declare void @llvm.stackrestore.p0(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @plica.dup(ptr %object) alwaysinline nounwind {
  %count = load i64, ptr %object, align 8
  %never = icmp slt i64 %count, 0
  %more = add i64 %count, 1
  br i1 %never, label %end, label %counted
counted:
  store i64 %more, ptr %object, align 8
  br label %end
end:
  ret void
}

define internal void @plica.drop(ptr %state, ptr %object) alwaysinline nounwind {
  %count = load i64, ptr %object, align 8
  %never = icmp slt i64 %count, 0
  br i1 %never, label %end, label %counted
counted:
  %less = sub i64 %count, 1
  store i64 %less, ptr %object, align 8
  %last = icmp eq i64 %less, 0
  br i1 %last, label %free, label %end
free:
  call void @plica.free(ptr %state, ptr %object)
  br label %end
end:
  ret void
}

; the same where a routine is long: LLVM's time grows faster than its length
define internal void @plica.dup.apart(ptr %object) noinline nounwind {
  call void @plica.dup(ptr %object)
  ret void
}

define internal void @plica.drop.apart(ptr %state, ptr %object) noinline nounwind {
  call void @plica.drop(ptr %state, ptr %object)
  ret void
}

define internal ptr @plica.take.apart(ptr %state, i64 %class) noinline nounwind {
  %object = call ptr @plica.take(ptr %state, i64 %class)
  ret ptr %object
}

define internal void @plica.give.apart(ptr %state, ptr %object) noinline nounwind {
  call void @plica.give(ptr %state, ptr %object)
  ret void
}

; an object whose fields somebody else has taken over
define internal void @plica.give(ptr %state, ptr %object) alwaysinline nounwind {
  %m = getelementptr i8, ptr %object, i64 8
  %meta = load i64, ptr %m, align 8
  %class = and i64 %meta, 255
  %lists = getelementptr i8, ptr %state, i64 <AT_FREE>
  %list = getelementptr ptr, ptr %lists, i64 %class
  %next = load ptr, ptr %list, align 8
  store ptr %next, ptr %object, align 8
  store ptr %object, ptr %list, align 8
  %l = getelementptr i8, ptr %state, i64 <AT_LIVE>
  %live = load i64, ptr %l, align 8
  %less = sub i64 %live, 1
  store i64 %less, ptr %l, align 8
  ret void
}

define internal void @plica.free(ptr %state, ptr %first) noinline nounwind {
entry:
  br label %object
object:
  %this = phi ptr [ %first, %entry ], [ %next.object, %freed ]
  %rest = phi ptr [ null, %entry ], [ %rest.then, %freed ]
  %m = getelementptr i8, ptr %this, i64 8
  %meta = load i64, ptr %m, align 8
  %shifted = lshr i64 %meta, 8
  %fields = and i64 %shifted, 16777215
  %at = getelementptr i8, ptr %this, i64 16
  br label %field
field:
  %n = phi i64 [ 0, %object ], [ %n.next, %next ]
  %waiting = phi ptr [ %rest, %object ], [ %waiting.next, %next ]
  %done = icmp eq i64 %n, %fields
  br i1 %done, label %all, label %look
look:
  %place = getelementptr ptr, ptr %at, i64 %n
  %inner = load ptr, ptr %place, align 8
  %count = load i64, ptr %inner, align 8
  %never = icmp slt i64 %count, 0
  br i1 %never, label %next, label %counted
counted:
  %less = sub i64 %count, 1
  %last = icmp eq i64 %less, 0
  br i1 %last, label %wait, label %shared
shared:
  store i64 %less, ptr %inner, align 8
  br label %next
wait:
  store ptr %waiting, ptr %inner, align 8
  br label %next
next:
  %waiting.next = phi ptr [ %waiting, %look ], [ %waiting, %shared ], [ %inner, %wait ]
  %n.next = add i64 %n, 1
  br label %field
all:
  %none = icmp eq ptr %waiting, null
  br i1 %none, label %last.one, label %freed.one
freed.one:
  %following = load ptr, ptr %waiting, align 8
  br label %freed
last.one:
  br label %freed
freed:
  %next.object = phi ptr [ %waiting, %freed.one ], [ null, %last.one ]
  %rest.then = phi ptr [ %following, %freed.one ], [ null, %last.one ]
  call void @plica.give(ptr %state, ptr %this)
  br i1 %none, label %end, label %object
end:
  ret void
}

; memory for an object of a class: null, and a note, where there is none
define internal ptr @plica.take(ptr %state, i64 %class) alwaysinline nounwind {
entry:
  %lists = getelementptr i8, ptr %state, i64 <AT_FREE>
  %list = getelementptr ptr, ptr %lists, i64 %class
  %found = load ptr, ptr %list, align 8
  %l = getelementptr i8, ptr %state, i64 <AT_LIVE>
  %live = load i64, ptr %l, align 8
  %more = add i64 %live, 1
  store i64 %more, ptr %l, align 8
  %none = icmp eq ptr %found, null
  br i1 %none, label %new, label %old
old:
  %next = load ptr, ptr %found, align 8
  store ptr %next, ptr %list, align 8
  br label %end
new:
  %made = call ptr @plica.more(ptr %state, i64 %class)
  br label %end
end:
  %object = phi ptr [ %found, %old ], [ %made, %new ]
  ret ptr %object
}

define internal ptr @plica.more(ptr %state, i64 %class) noinline nounwind {
entry:
  %size = shl i64 64, %class
  %large = icmp ugt i64 %size, <LARGE>
  br i1 %large, label %alone, label %together
together:
  %b = getelementptr i8, ptr %state, i64 <AT_BUMP>
  %bump = load i64, ptr %b, align 8
  %e = getelementptr i8, ptr %state, i64 <AT_BUMP_END>
  %end = load i64, ptr %e, align 8
  %after = add i64 %bump, %size
  %fits = icmp ule i64 %after, %end
  br i1 %fits, label %cut, label %chunk
cut:
  store i64 %after, ptr %b, align 8
  %object = inttoptr i64 %bump to ptr
  ret ptr %object
chunk:
  %new = call ptr @plica.chunk(ptr %state, i64 <CHUNK>)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %none, label %begun
begun:
  %start = ptrtoint ptr %new to i64
  %stop = add i64 %start, <CHUNK>
  %first = add i64 %start, 64
  %second = add i64 %first, %size
  store i64 %second, ptr %b, align 8
  store i64 %stop, ptr %e, align 8
  %cell = inttoptr i64 %first to ptr
  ret ptr %cell
alone:
  %whole = add i64 %size, 64
  %big = call ptr @plica.chunk(ptr %state, i64 %whole)
  %lost = icmp eq ptr %big, null
  br i1 %lost, label %none, label %got
got:
  %body = getelementptr i8, ptr %big, i64 64
  ret ptr %body
none:
  ret ptr null
}

; memory of the system, known to the state so that it can be given back
define internal ptr @plica.chunk(ptr %state, i64 %size) noinline nounwind {
entry:
  %place = alloca ptr, align 8
  %h = getelementptr i8, ptr %state, i64 <AT_HELD>
  %held = load i64, ptr %h, align 8
  %sum = add i64 %held, %size
  %m = getelementptr i8, ptr %state, i64 <AT_MOST>
  %most = load i64, ptr %m, align 8
  %much = icmp ugt i64 %sum, %most
  br i1 %much, label %none, label %ask
ask:
  %code = call i32 @posix_memalign(ptr %place, i64 64, i64 %size)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %none, label %some
none:
  %c = getelementptr i8, ptr %state, i64 <AT_CODE>
  store i64 <FULL>, ptr %c, align 8
  ret ptr null
some:
  %new = load ptr, ptr %place, align 8
  %k = getelementptr i8, ptr %state, i64 <AT_CHUNKS>
  %old = load ptr, ptr %k, align 8
  store ptr %old, ptr %new, align 8
  store ptr %new, ptr %k, align 8
  store i64 %sum, ptr %h, align 8
  ret ptr %new
}

define hidden void @<RESET>(ptr %state) nounwind {
entry:
  %k = getelementptr i8, ptr %state, i64 <AT_CHUNKS>
  %first = load ptr, ptr %k, align 8
  br label %loop
loop:
  %chunk = phi ptr [ %first, %entry ], [ %next, %some ]
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %end, label %some
some:
  %next = load ptr, ptr %chunk, align 8
  call void @free(ptr %chunk)
  br label %loop
end:
  store ptr null, ptr %k, align 8
  %b = getelementptr i8, ptr %state, i64 <AT_BUMP>
  store i64 0, ptr %b, align 8
  %e = getelementptr i8, ptr %state, i64 <AT_BUMP_END>
  store i64 0, ptr %e, align 8
  %h = getelementptr i8, ptr %state, i64 <AT_HELD>
  store i64 0, ptr %h, align 8
  %l = getelementptr i8, ptr %state, i64 <AT_LIVE>
  store i64 0, ptr %l, align 8
  %f = getelementptr i8, ptr %state, i64 <AT_FREE>
  call void @llvm.memset.p0.i64(ptr %f, i8 0, i64 <CLEARED>, i1 false)
  ret void
}

define hidden void @<RELEASE>(ptr %state, ptr %object) nounwind {
  call void @plica.drop(ptr %state, ptr %object)
  ret void
}

; see Note [Stack]: LLVM is told nothing, so all that this function keeps must be found by its frame
define hidden i64 @<RUN>(ptr %state, ptr %args, ptr %results) optnone noinline nounwind
    "frame-pointer"="all" {
  %a = getelementptr i8, ptr %state, i64 <AT_ARGS>
  store ptr %args, ptr %a, align 8
  %r = getelementptr i8, ptr %state, i64 <AT_RESULTS>
  store ptr %results, ptr %r, align 8
  %c = getelementptr i8, ptr %state, i64 <AT_CODE>
  store i64 0, ptr %c, align 8
  %t = getelementptr i8, ptr %state, i64 <AT_TOP>
  %top = load ptr, ptr %t, align 8
  %nothing = load i64, ptr %c, align 8
  %unknown = alloca i8, i64 %nothing, align 16
  %here = call ptr @llvm.stacksave.p0()
  call void @llvm.stackrestore.p0(ptr %top)
  call void @plica.begin(ptr %state)
  call void @llvm.stackrestore.p0(ptr %here)
  %code = load i64, ptr %c, align 8
  ret i64 %code
}
