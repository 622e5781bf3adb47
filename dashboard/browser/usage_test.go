//go:build !race

package browser_test

import (
	"regexp"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	s := newSite(t, "spec.json")
	s.raise(uid("a"), "1", "2", "3")
	b := s.open(t, page("usage"))
	b.settled("Usage")
	for _, name := range []string{"Events per day", "Reads per day", "Storage"} {
		figure := b.see("figure", name)
		b.until("something drawn in "+name, func() (bool, error) {
			n, err := call[int](figure, `function () {
				const c = this.querySelector('canvas');
				return c && c.width ? c.getContext('2d').getImageData(0, 0, c.width, c.height).data.filter((v, i) => i % 4 === 3 && v).length : 0;
			}`)
			return n > 50, err
		})
	}

	// For those who do not see the plots.
	today := time.Now().UTC().Format(time.DateOnly)
	b.see("table", "Usage by day").shows(today + `\s+prod\s+6\s`)
	b.see("region", "Plan").shows(`Events this month\s+6`)
	b.see("combobox", "Range").choose("Last 90 days")
	b.arrive(page("usage?days=90"))
	b.settled("Usage")
	b.see("figure", regexp.MustCompile("^Storage$"))
}
