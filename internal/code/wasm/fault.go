package wasm

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"j17/internal/code/sandbox"
)

func start(detail, hint string) *sandbox.Fault {
	return &sandbox.Fault{Kind: sandbox.Start, Detail: detail, Hint: hint}
}

// invalid is the fault of a binary that cannot be used.
func invalid(err error) *sandbox.Fault {
	return start("the module is not valid: "+err.Error(), "Build it again as a core WebAssembly module and look at it with 'j17 wasm inspect'.")
}

// firstLine cuts a trace off an error.
func firstLine(err error) error {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}

// fault returns what the error of a call means. refused reports whether the memory was refused to grow during the call.
func (m *Module) fault(r *run, err error, refused bool) error {
	if ctx := r.ctx.Err(); ctx != nil && errors.Is(err, ctx) {
		return ctx
	}
	if _, ok := errors.AsType[noRoom](err); ok {
		return busy(r)
	}
	f := &sandbox.Fault{Log: r.log.text()}

	// The reasons for which the run was stopped, the most certain ones first.
	out, ended := errors.AsType[exit](err)
	_, late := errors.AsType[timeUp](err)
	_, stalled := errors.AsType[clockUp](err)
	switch {
	case late:
		f.Kind = sandbox.Timeout
		f.Detail = fmt.Sprintf("the code did not answer within %s", time.Duration(r.most)*tickTime)
		f.Hint = "Look for a loop that does not end, do less in one call, or raise timeout_ms."
	case stalled:
		f.Kind = sandbox.Busy
		f.Detail = fmt.Sprintf("the code did not answer within %s, and the processor had too little time for it", r.limit)
		f.Hint = "Try again. If it happens often, let the code jump about less in its memory."
	case refused:
		f.Kind = sandbox.Memory
		f.Detail = fmt.Sprintf("the code needs more than the %d MiB of memory that it may have", m.largest()/16)
		f.Hint = "Keep less in memory at once; all memory is given back after each call."
	case ended && r.abort != "":
		f.Kind = sandbox.Trap
		f.Detail, f.Quotes = "the code has aborted: "+r.abort, true
		f.Hint = "Check for what led to this and answer with an error instead."
	case ended:
		f.Kind = sandbox.Exit
		f.Detail = fmt.Sprintf("the code has ended itself with status %d", out.code)
		f.Hint = "Trace the calls to see what the code says, as with a panic in Go; answer with an error instead of ending."
	default:
		f.Kind = sandbox.Trap
		reason, function := trap(err)
		f.Detail, f.Hint = "the code has stopped: "+reason, trapHint(reason)
		if function != "" {
			f.Detail += ", in " + function
		}
	}
	return f
}

// largest returns how many pages the memory may have.
func (m *Module) largest() uint32 {
	if m.parsed.Memory.HasMax {
		return min(m.parsed.Memory.Max, m.rt.pages)
	}
	return m.rt.pages
}

// trap takes the reason and the innermost function out of the text of an error, whose form is
//
//	wasm error: REASON
//	wasm stack trace:
//		.FUNCTION(TYPES)
func trap(err error) (reason, function string) {
	lines := strings.SplitN(err.Error(), "\n", 8)
	reason = strings.TrimPrefix(lines[0], "wasm error: ")
	for _, line := range lines[1:] {
		if name, ok := strings.CutPrefix(line, "\t."); ok {
			name, _, _ = strings.Cut(name, "(")
			if name = strings.TrimSpace(name); name != "" && !strings.HasPrefix(name, "$") {
				return reason, shown(name)
			}
		}
	}
	return reason, ""
}

// shown makes a name from a binary safe for a message.
func shown(name string) string {
	if short := fmt.Sprintf("%.60q", name); short != `"`+name+`"` {
		return short
	}
	return name
}

func trapHint(reason string) string {
	switch {
	case strings.Contains(reason, "stack overflow"):
		return "Look for a function that calls itself without an end, or use a loop."
	case strings.Contains(reason, "unreachable"):
		return "Most languages end so on a panic or a failed assertion, and some write why to the log: handle the case and answer with an error instead."
	case strings.Contains(reason, "out of bounds memory"):
		return "Check pointers, lengths and the sizes of buffers."
	case strings.Contains(reason, "divide by zero"):
		return "Check the divisor before dividing."
	case strings.Contains(reason, "table"), strings.Contains(reason, "indirect call"),
		strings.Contains(reason, "null reference"):
		return "A function pointer does not point to a function of the expected type."
	case strings.Contains(reason, "integer"):
		return "Check the range of numbers before converting them."
	default:
		return "Run it with 'j17 wasm run' on the same input to find out."
	}
}

func (t *tail) text() string {
	text := strings.ToValidUTF8(string(t.b), "\uFFFD")
	if t.cut {
		return "…" + text
	}
	return text
}
