// Package sandbox is the seam between the engine and custom code. Below it, wasm runs WebAssembly modules and container
// runs processes; both hand out Functions, which are all that the engine knows of them.
package sandbox

import "context"

// Function is one entry point of custom code with its limits, ready to be called. It is safe for concurrent use, keeps
// nothing from one call to the next, and can reach nothing but its input.
type Function interface {
	// Call passes one JSON text in and returns what the code answered, which the caller owns and has yet to parse.
	// The error is a *Fault where the code is at fault, else that of the context.
	Call(ctx context.Context, input []byte) ([]byte, error)
	// Digest identifies the code and the entry point: functions with the same digest answer the same.
	Digest() [32]byte
}

// Kind is the kind of a fault of custom code.
type Kind string

// The kinds.
const (
	// Timeout: the call took longer than it may.
	Timeout Kind = "timeout"
	// Memory: the code asked for more memory than it may have.
	Memory Kind = "memory"
	// Trap: the code stopped itself or broke a rule of its machine, as with a division by zero.
	Trap Kind = "trap"
	// InvalidOutput: the answer lies outside the code's memory, is too large, or is not what the contract asks for.
	InvalidOutput Kind = "invalid_output"
	// Exit: the process ended instead of answering.
	Exit Kind = "exit"
	// Start: the code could not be started.
	Start Kind = "start"
	// Busy: the code was not run, or not to its end, because other calls need the same resources. The code is not at
	// fault.
	Busy Kind = "busy"
	// Exhausted: the calls for one command would take more together than they may.
	Exhausted Kind = "exhausted"
)

// Fault is a failure of custom code.
type Fault struct {
	Kind Kind
	// Detail says what happened in one sentence without a full stop. Quotes reports that it quotes output of the code,
	// which may be anything that the code was given.
	Detail string
	Quotes bool
	// Hint says what the author of the code can do about it, in one sentence.
	Hint string
	// Log is the end of what the code wrote to its standard error, "" where there is none.
	Log string
}

// Error returns the kind and the detail.
func (f *Fault) Error() string { return "custom code: " + string(f.Kind) + ": " + f.Detail }

// Record is the part of the fault that may be kept: nothing that the code has said.
func (f *Fault) Record() string {
	if f.Quotes {
		return "custom code: " + string(f.Kind)
	}
	return f.Error()
}
