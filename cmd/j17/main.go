// Command j17 is the server and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInvalid     = 3 // an invalid spec or invalid events
	exitConflict    = 4
	exitAuth        = 5
	exitNotFound    = 6
	exitVerifyFails = 7
)

// env is what a command may use of the world.
type env struct {
	getenv func(string) string
	in     io.Reader
	out    io.Writer // data
	err    io.Writer // everything else
}

// usageError is a mistake in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// silent is an error that has been reported already.
type silent struct{ error }

func (e silent) Unwrap() error { return e.error }

func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := &env{getenv: getenv, in: stdin, out: stdout, err: stderr}
	root := e.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if _, ok := errors.AsType[silent](err); err != nil && !ok {
		text := fmt.Sprintf("j17: %v\n", err)
		if _, ok := errors.AsType[usageError](err); ok {
			text += "Run 'j17 help' for how to use it.\n"
		}
		_, _ = io.WriteString(stderr, text) // there is nowhere else to say it
	}
	return exitCode(err)
}

// exitCode is the only map from errors to exit codes.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, server.ErrInvalidSpec) {
		return exitInvalid
	}
	//nolint:exhaustive // all other codes are plain failures
	switch j17.CodeOf(err) {
	case j17.CodeInvalidSpec, j17.CodeIncompatibleSpec, j17.CodeSchemaViolation:
		return exitInvalid
	case j17.CodeConflict, j17.CodePreconditionFailed:
		return exitConflict
	case j17.CodeUnauthorized, j17.CodeForbidden, j17.CodeWrongEnvironment, j17.CodeWrongInstance, j17.CodeInsufficientScope:
		return exitAuth
	case j17.CodeNotFound, j17.CodeAggregateNotFound, j17.CodeUnknownType, j17.CodeUnknownEventType:
		return exitNotFound
	case j17.CodeCorruption:
		return exitVerifyFails
	default:
		return exitFailure
	}
}

func (e *env) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "j17",
		Short:         "An event-sourcing backend from one JSON spec",
		Long:          "j17 turns one JSON spec into a durable event-sourcing backend over HTTP.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(e.in)
	root.SetOut(e.out)
	root.SetErr(e.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(e.dev(), e.spec(), e.handler(), e.events(), e.state(), e.version())
	root.AddCommand(e.docs(), e.mcp())
	return root
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown command or argument %q for %q", args[0], cmd.CommandPath())}
	}
	return nil
}

// exactly checks the number of arguments and names the missing one.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usageError{fmt.Errorf("%s needs %s", cmd.CommandPath(), names[len(args)])}
		case len(args) > len(names):
			return usageError{fmt.Errorf("%s does not take %q", cmd.CommandPath(), args[len(names)])}
		default:
			return nil
		}
	}
}
