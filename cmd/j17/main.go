// Command j17 is the server and its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17"
	"j17/internal/lang/diag"
	"j17/internal/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	context.AfterFunc(ctx, func() { // a second signal ends the program whatever it does
		quit := make(chan os.Signal, 1)
		signal.Notify(quit, syscall.SIGQUIT) // without the stack dump that it has otherwise
		stop()
		<-quit
		os.Exit(exitInterrupted)
	})
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// endings are the signals that end the program in an orderly way.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
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
	exitInterrupted = 130 // as shells have it
)

// env is what a command may use of the world.
type env struct {
	getenv func(string) string
	// environ lists all variables there are, each as NAME=VALUE.
	environ func() []string
	in      io.Reader
	out     io.Writer // data
	err     io.Writer // everything else
	// interruptible returns a reader of another one whose reads end when the command is interrupted.
	interruptible func(io.Reader) io.Reader
	// answers reports whether the development server of a data folder answers at its URL; nil means that none does.
	answers func(server.DevAccess) bool
	// machine is true for a command with --json: findings are a part of what it prints.
	machine bool
}

// eventError is a refusal that is about an event, whatever its code is used for besides.
type eventError struct{ error }

func (e eventError) Unwrap() error { return e.error }

// unknownFilter is the refusal of a type that --type or --event names and that does not exist.
type unknownFilter struct{ error }

func (e unknownFilter) Unwrap() error { return e.error }

// byType is the error of a command whose flags --type and --event become parameters. The API reports an unknown type as
// a fault of the parameter; nothing else can be wrong with these two.
func byType(err error) error {
	if e, ok := errors.AsType[*j17.Error](err); ok && e.Code == j17.CodeInvalidParameter &&
		(e.Path == "type" || e.Path == "event") {
		return unknownFilter{err}
	}
	return err
}

// usageError is a mistake in how a command was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// silent is an error that has been reported already.
type silent struct{ error }

func (e silent) Unwrap() error { return e.error }

func run(
	ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer,
) int {
	out := &output{w: stdout}
	e := &env{getenv: getenv, environ: os.Environ, in: stdin, out: out, err: lenientWriter{stderr}}
	e.interruptible = func(in io.Reader) io.Reader { return &interruptibleReader{ctx: ctx, in: in} }
	e.answers = func(dev server.DevAccess) bool { return devAnswers(ctx, dev) }
	root := rootCommand(e)
	root.SetArgs(args)
	root.SetOut(out)
	cmd, err := root.ExecuteContextC(ctx)
	if err = out.verdict(err); err != nil {
		e.tell(err, wantsJSON(cmd, args) && !servesAtLast(cmd), out, called(root, args))
	}
	return exitCode(err)
}

// exitCode is the only map from errors to exit codes.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}

	// Errors that this program has found itself.
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if errors.Is(err, server.ErrInvalidSpec) {
		return exitInvalid
	}
	if _, ok := errors.AsType[eventError](err); ok {
		return exitInvalid
	}

	if _, ok := errors.AsType[unknownFilter](err); ok {
		return exitNotFound
	}
	if damaged, locked := damagedBackup(err); damaged {
		return exitVerifyFails
	} else if locked {
		return exitAuth
	}

	// What a server has answered, or would have.
	//nolint:exhaustive // all other codes are plain failures
	switch j17.CodeOf(err) {
	case j17.CodeInvalidSpec, j17.CodeIncompatibleSpec, j17.CodeSchemaViolation,
		j17.CodeRequirementFailed, j17.CodeInvalidOperand, j17.CodeHandlerRejected, j17.CodeImplicationFailed,
		j17.CodeImplicationLimit, j17.CodeScheduleLimit:
		return exitInvalid
	case j17.CodeConflict, j17.CodeAlreadyExists, j17.CodeConditionFailed, j17.CodeNotUnique, j17.CodeGracePeriod,
		j17.CodeIdempotencyErased, j17.CodePreconditionFailed, j17.CodeCheckpointOutdated:
		return exitConflict
	case j17.CodeUnauthorized, j17.CodeForbidden, j17.CodeWrongEnvironment, j17.CodeWrongInstance,
		j17.CodeInsufficientScope:
		return exitAuth
	case j17.CodeNotFound, j17.CodeAggregateNotFound, j17.CodeUnknownType, j17.CodeUnknownEventType,
		j17.CodeUnknownProjection, j17.CodeNoGeo:
		return exitNotFound
	case j17.CodeCorruption:
		return exitVerifyFails
	default:
		if errors.Is(err, fs.ErrNotExist) { // a file
			return exitNotFound
		}
		return exitFailure
	}
}

func rootCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "j17",
		Short:         "An event-sourcing backend from one JSON spec",
		Long:          "j17 turns one JSON spec into a durable event-sourcing backend over HTTP.",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			e.machine = wantsJSON(cmd, nil)
		},
	}

	// The version that cobra prints by itself goes through a template, for which the linker keeps every exported method
	// of the program.
	version := root.Flags().BoolP("version", "v", false, "version for j17")
	root.Args = func(cmd *cobra.Command, args []string) error {
		if *version {
			return nil
		}
		return noArgs(cmd, args)
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*version {
			return cmd.Help()
		}
		_, err := fmt.Fprintln(e.out, "j17", programVersion)
		return err
	}
	root.SetIn(e.in)
	root.SetErr(e.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{flagError(cmd, err)} })

	// Commands, in the order in which help shows them.
	root.AddCommand(
		devCommand(e), specCommand(e), handlerCommand(e), eventsCommand(e), dataCommand(e), stateCommand(e),
		versionCommand(e),
	)
	root.AddCommand(docsCommand(e), mcpCommand(e), wasmCommand(e), openAPICommand(e))
	root.AddCommand(
		loginCommand(e), logoutCommand(e), whoamiCommand(e), contextsCommand(e), instancesCommand(e), keysCommand(e),
		operatorsCommand(e), dashboardCommand(e), sessionsCommand(e), auditLogCommand(e), backupsCommand(e),
		blobsCommand(e), projectionsCommand(e), placesCommand(e), listenersCommand(e), sagasCommand(e),
		scheduledCommand(e), overviewCommand(e), attentionCommand(e), aggregatesCommand(e), tombstonesCommand(e),
		listenCommand(e), checkpointsCommand(e), scrubCommand(e), testCommand(e),
	)
	root.AddCommand(serveCommand(e), healthCommand(e), storeCommand(e))
	completeFlags(e, root)
	// Of the commands that cobra adds, these two take any argument for one that asks for help.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return unknownCommand(found, rest)
				}
				return nil
			}
		case "completion":
			cmd.Args = noArgs
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		}
	}
	return root
}

// called is the command that arguments name, as far as they name one.
func called(root *cobra.Command, args []string) string {
	cmd, _, err := root.Find(args)
	if err != nil || cmd == nil {
		return root.Name()
	}
	return cmd.CommandPath()
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args)
	}
	return nil
}

// unknownCommand is the error of arguments that a command has no use for.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if !cmd.HasAvailableSubCommands() {
		return usageError{fmt.Errorf("%s does not take %q", cmd.CommandPath(), args[0])}
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	hint := "There are " + strings.Join(names, ", ")
	near := diag.Nearest(args[0], names)
	for _, c := range cmd.Commands() {
		if slices.Contains(c.SuggestFor, args[0]) {
			near = c.Name()
		}
	}
	if near != "" {
		hint = fmt.Sprintf("Did you mean %q?", near)
	}
	if below := commandBelow(cmd, args[0]); near == "" && below != "" {
		hint = "Did you mean " + below + "?"
	}
	return usageError{fmt.Errorf("%s has no command %q. %s", cmd.CommandPath(), args[0], hint)}
}

// commandBelow returns what to call for a name that only commands further down have, "" where none or too many have it.
func commandBelow(cmd *cobra.Command, name string) string {
	var found []string
	for _, group := range cmd.Commands() {
		for _, c := range group.Commands() {
			if c.IsAvailableCommand() && group.Name() != "completion" &&
				(c.Name() == name || slices.Contains(c.SuggestFor, name)) {
				found = append(found, strconv.Quote(c.CommandPath()))
			}
		}
	}
	if len(found) > 3 {
		return "" // a word such as "list", which says nothing
	}
	return strings.Join(found, " or ")
}

// insteadOf says what to use in place of a flag that other programs have, "" where nothing is known.
func insteadOf(command, flag string) string {
	return map[string]string{
		"j17 events tail --follow": ": it follows by itself, and ends at the last event with --no-follow",
		"j17 version --short":      ": 'j17 --version' prints the version alone, and --json its parts",
		"j17 mcp --read-only":      ": it is read-only unless it has --allow-writes",
	}[command+" --"+flag]
}

// flagError reports a fault of a flag in words of this program.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		if hint := insteadOf(cmd.CommandPath(), unknown.GetSpecifiedName()); hint != "" {
			return fmt.Errorf("%s has no flag --%s%s", cmd.CommandPath(), unknown.GetSpecifiedName(), hint)
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := diag.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return fmt.Errorf("%s has no flag --%s. Did you mean --%s?", cmd.CommandPath(), unknown.GetSpecifiedName(), near)
		}
		return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), unknown.GetSpecifiedName())
	}
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("--%s cannot be %q: it takes %s", bad.GetFlag().Name, bad.GetValue(), taken(bad.GetFlag()))
}

// taken describes the values of a flag.
func taken(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "uint64":
		return "a whole number of 0 or more"
	case versionFlagType, limitFlagType:
		return "a whole number of 1 or more"
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number"
	case "bool":
		return "true or false"
	case blobFlagType:
		return "a blob and its content, as in orders.wasm=build/orders.wasm"
	case "duration":
		return "a time such as 30s or 5m"
	case waitFlagType:
		return "a time of more than 0, such as 30s or 5m"
	}
	return "a value of another kind"
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
