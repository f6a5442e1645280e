@plica.tiles.{name}.shape = private unnamed_addr constant [64 x i8] [{shape}]
@plica.tiles.{name}.asked = internal global i8 0

define internal void @plica.tiles.{name}(ptr %x, i64 %row, ptr %w, i64 %vector, ptr %y, i64 %steps) noinline {{
entry:
  %old = load i8, ptr @plica.tiles.{name}.asked
  %new = icmp eq i8 %old, 0
  br i1 %new, label %ask, label %begin
ask:
  %answer = call i64 (i64, ...) @syscall(i64 158, i64 4131, i64 18)
  store i8 1, ptr @plica.tiles.{name}.asked
  br label %begin
begin:
  call void @llvm.x86.ldtilecfg(ptr @plica.tiles.{name}.shape)
{zeros}
  br label %step
step:
  %n = phi i64 [ 0, %begin ], [ %next, %step ]
  %right = mul i64 %n, 64
  %down = mul i64 %n, 1024
{loads}
{products}
  %next = add nuw i64 %n, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %step, label %end
end:
{stores}
  call void @llvm.x86.tilerelease()
  ret void
}}
