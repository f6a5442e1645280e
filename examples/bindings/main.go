// The model `words` from Go: one row of numbers in, twelve scores out.
package main

import (
	"fmt"
	"os"

	"example/words"
)

func main() {
	x := make([]float32, 36)
	for i := range x {
		x[i] = float32(i%7) / 7
	}
	scores, err := words.Run(x)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	sum := 0.0
	for _, each := range scores {
		sum += float64(each)
	}
	fmt.Printf("%.6f\n", sum)
	if _, err = words.Run(x[:35]); err == nil {
		os.Exit(1)
	}
}
