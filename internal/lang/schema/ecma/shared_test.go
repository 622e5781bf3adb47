package ecma_test

import (
	"sync"
	"testing"

	"j17/internal/base/work"
	"j17/internal/lang/schema/ecma"
)

// TestFirstUseIsShared matches with a new pattern from several goroutines at once; it is of use under the race
// detector.
func TestFirstUseIsShared(t *testing.T) {
	library := ecma.NewLibrary()
	var wg sync.WaitGroup
	for _, pattern := range []string{`^\p{L}+$`, `^(?=\p{L})[\p{L}]{1,900}$`} {
		re, err := library.Compile(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := library.Compile(pattern); again != re || err != nil {
			t.Errorf("%q was compiled twice: %v", pattern, err)
		}
		for range 4 {
			wg.Go(func() {
				if !re.Match("größe", work.Counted(work.Command)) {
					t.Errorf("%q does not match", pattern)
				}
			})
		}
	}
	wg.Wait()
}
