define internal i{n} @plica.power.i{n}(i{n} %base, i{n} %exponent) {{
entry:
  br label %test
test:
  %r = phi i{n} [ 1, %entry ], [ %r.next, %again ]
  %b = phi i{n} [ %base, %entry ], [ %b.next, %again ]
  %e = phi i{n} [ %exponent, %entry ], [ %e.next, %again ]
  %done = icmp eq i{n} %e, 0
  br i1 %done, label %end, label %again
again:
  %bit = and i{n} %e, 1
  %odd = icmp ne i{n} %bit, 0
  %times = mul i{n} %r, %b
  %r.next = select i1 %odd, i{n} %times, i{n} %r
  %b.next = mul i{n} %b, %b
  %e.next = lshr i{n} %e, 1
  br label %test
end:
  ret i{n} %r
}}
