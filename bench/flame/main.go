// Command flame draws a processor profile as a flame graph: `flame TITLE <profile.pb.gz >graph.svg`. The width of a box
// is the share of samples in which its function was on the stack; callers are below. The pointer shows names in full.
package main

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "flame:", err)
		os.Exit(1)
	}
}

// frame is a function on the stack, with what it called.
type frame struct {
	name  string
	value int64
	calls map[string]*frame
}

func (f *frame) call(name string) *frame {
	if f.calls == nil {
		f.calls = map[string]*frame{}
	}
	if f.calls[name] == nil {
		f.calls[name] = &frame{name: name}
	}
	return f.calls[name]
}

func (f *frame) depth() int {
	deepest := 0
	for _, c := range f.calls {
		deepest = max(deepest, c.depth())
	}
	return deepest + 1
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the title")
	}
	p, err := profile.Parse(in)
	if err != nil {
		return err
	}
	last := len(p.SampleType) - 1
	root := &frame{name: "all"}
	for _, s := range p.Sample {
		v := s.Value[last]
		f := root
		f.value += v
		for _, l := range slices.Backward(s.Location) {
			for _, line := range slices.Backward(l.Line) {
				f = f.call(line.Function.Name)
				f.value += v
			}
		}
	}
	d := drawing{total: root.value, height: min(root.depth(), maxDepth) * rowHeight}
	fmt.Fprintf(&d.svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="monospace" font-size="11">`+"\n", width, d.height+titleHeight)
	fmt.Fprintf(&d.svg, `<text x="4" y="14">%s</text>`+"\n", html.EscapeString(args[0]))
	d.draw(root, 0, 0)
	d.svg.WriteString("</svg>\n")
	_, err = io.WriteString(out, d.svg.String())
	return err
}

const (
	width       = 1400
	rowHeight   = 15
	titleHeight = 20
	charWidth   = 6.7
	maxDepth    = 60
	// thinnest is the width in pixels of the boxes that are left out.
	thinnest = 0.7
)

type drawing struct {
	svg    strings.Builder
	total  int64
	height int
}

func (d *drawing) draw(f *frame, x float64, level int) {
	w := float64(f.value) / float64(d.total) * width
	if w < thinnest || level >= maxDepth {
		return
	}
	y := titleHeight + d.height - (level+1)*rowHeight
	fmt.Fprintf(&d.svg, `<g><title>%s: %.1f%%</title><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" rx="1"/>`,
		html.EscapeString(f.name), 100*float64(f.value)/float64(d.total), x, y, max(w-0.4, 0.3), rowHeight-1,
		color(f.name))
	if fits := int((w - 4) / charWidth); fits >= 3 {
		fmt.Fprintf(&d.svg, `<text x="%.1f" y="%d">%s</text>`, x+2, y+11, html.EscapeString(clip(short(f.name), fits)))
	}
	d.svg.WriteString("</g>\n")
	for _, c := range slices.SortedFunc(
		maps.Values(f.calls), func(a, b *frame) int { return cmp.Compare(a.name, b.name) },
	) {
		d.draw(c, x, level+1)
		x += float64(c.value) / float64(d.total) * width
	}
}

// short leaves out the folders of a package path and type arguments.
func short(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name[strings.LastIndexByte(name, '/')+1:]
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n-1] + "…"
	}
	return s
}

// color gives each package a hue of its own: ours warm, the storage engine green, the rest grey and blue.
func color(name string) string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, name)
	light := 62 + h.Sum32()%18
	hue, saturation := 215, 30
	switch {
	case strings.HasPrefix(name, "j17"):
		hue, saturation = 20, 85
	case strings.Contains(name, "pebble"):
		hue, saturation = 120, 45
	case strings.HasPrefix(name, "net/http"):
		hue, saturation = 50, 75
	case strings.HasPrefix(name, "runtime"):
		hue, saturation = 0, 0
	}
	return fmt.Sprintf("hsl(%d,%d%%,%d%%)", hue, saturation, light)
}
