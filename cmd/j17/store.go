package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17"
	"j17/internal/server"
)

// storeFlag is the flag for the address of the store; the names of its other flags begin with it and a hyphen.
const storeFlag = "store"

// storeFlags declares the flags of a store on PostgreSQL.
func storeFlags(f *pflag.FlagSet, o *server.StoreOptions) {
	f.StringVar(&o.Address, storeFlag, "", "`address` of the PostgreSQL that the store is on, such as postgres://j17@db.example.com/j17; several hosts with commas between (default the data folder)")
	f.StringVar(&o.PasswordFile, "store-password-file", "", "`file` with the password of the role in that address")
	f.StringVar(&o.Schema, "store-schema", server.DefaultStoreSchema, "`schema` that has the store; made if the role may")
	f.BoolVar(&o.AllowSingle, "store-allow-single", false, "accept a server whose commits wait for no standby: what was acknowledged is lost with it")
	f.BoolVar(&o.AllowAsync, "store-allow-async", false, "accept settings of the server that can lose what it has acknowledged")
	f.BoolVar(&o.Plain, "store-plain", false, "accept connections to other machines without a verified certificate")
	f.IntVar(&o.Connections, "store-connections", server.DefaultStoreConnections, "how many connections to the server there are")
	f.IntVar(&o.Cells, "store-cells", server.DefaultStoreCells, "in how many `parts` the tables of a new schema are, of which an erasure rewrites one at a time")
}

// readsFlag declares the flag of a store on PostgreSQL that only servers have.
func readsFlag(f *pflag.FlagSet, o *server.StoreOptions) {
	f.StringVar(&o.Reads, "store-reads", server.DefaultStoreReads, "what answers rely on: the server's last sign of life to the database (lease), a commit with each read (quorum), or what the primary shows, replicated or not (primary)")
}

// erasureFlag declares the flag for how often erasures on PostgreSQL rewrite tables.
func erasureFlag(f *pflag.FlagSet, o *server.Options, every time.Duration) {
	f.DurationVar(&o.EraseEvery, erasureEveryFlag, every, "`time` that has to pass on PostgreSQL until tables are written anew again for erasures, which share that")
}

// erasureEveryFlag is the name of that flag.
const erasureEveryFlag = "erasure-every"

// secretFlag declares the flag of the node secret for commands that run without a server.
func secretFlag(f *pflag.FlagSet, o *server.StoreOptions) {
	f.StringVar(&o.NodeSecretFile, "node-secret-file", "", "`file` with the secret of the servers on that store")
}

// storeSettings sets the flags of the store that are not on the command line from the environment, and returns all
// errors in the environment.
func (e *env) storeSettings(f *pflag.FlagSet, o *server.StoreOptions) []error {
	o.AddressShown = f.Changed(storeFlag)
	return fromVariables(f, e.getenv, func(f *pflag.Flag) bool {
		return f.Name == storeFlag || strings.HasPrefix(f.Name, storeFlag+"-") || f.Name == "node-secret-file" ||
			f.Name == erasureEveryFlag
	})
}

func storeCommand(e *env) *cobra.Command {
	return group(
		"store", "A store on PostgreSQL: check the server, migrate the tables, measure them",
		storeCheckCommand(e), storeMigrateCommand(e), storeStatsCommand(e),
	)
}

// storeHelp says how the commands find the store.
const storeHelp = `

The server is that of --store or J17_STORE. Its password stands in J17_STORE or in a file (--store-password-file), never on the
command line. Each flag can be set by a variable as well, as for 'j17 serve'.`

// onStore gives a command the flags of a store. The command calls do if they are valid.
func onStore(e *env, cmd *cobra.Command, do func(cmd *cobra.Command, o *server.StoreOptions) error) *cobra.Command {
	var o server.StoreOptions
	cmd.Args = noArgs
	storeFlags(cmd.Flags(), &o)
	secretFlag(cmd.Flags(), &o)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		problems := e.storeSettings(cmd.Flags(), &o)
		if problems = append(problems, o.Check()...); !o.Given() {
			problems = append(problems, errors.New("name the server with --store or J17_STORE"))
		}
		if len(problems) > 0 {
			return usageError{errors.Join(problems...)}
		}
		return interrupted(cmd.Context(), do(cmd, &o))
	}
	return cmd
}

// storeLogger returns the logger of commands that print their results: it logs only warnings and errors.
func storeLogger(e *env) *slog.Logger {
	return slog.New(slog.NewTextHandler(e.err, logOptions(slog.LevelWarn)))
}

func storeCheckCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check whether a store can be on a PostgreSQL",
		Long: `Check the settings of a PostgreSQL, the rights of the role and the schema, as 'j17 serve' does before it opens a store there, and what
erasures need. Nothing is changed. With --node-secret-file, also whether servers with that secret own the store.` + storeHelp + `

Exit code 1: the server cannot be reached, or 'j17 serve' would refuse it.`,
		Example: "  j17 store check --store postgres://j17@db.example.com/j17 --store-password-file password",
	}
	jsonFlag(cmd, &asJSON)
	return onStore(e, cmd, func(cmd *cobra.Command, o *server.StoreOptions) error {
		r, err := o.Look(cmd.Context(), quietLogger(e))
		if err != nil {
			return err
		}
		if asJSON {
			err = e.printJSON(r)
		} else {
			err = printStoreReport(e, &r)
		}
		if n := r.Refused(); err == nil && n > 0 {
			err = fmt.Errorf("a store cannot be opened there, for %s", j17.Count(n, "fault"))
		}
		return err
	})
}

func printStoreReport(e *env, r *server.StoreReport) error {
	tables := "no tables yet"
	if r.Version > 0 {
		tables = fmt.Sprintf("tables of version %d", r.Version)
	}
	if _, err := fmt.Fprintf(e.out, "%s: PostgreSQL %s, schema %s with %s.\n\n", printable(r.Store), printable(r.Server), printable(r.Schema), tables); err != nil {
		return err
	}
	rows, wrong := make([][]string, len(r.Findings)), ""
	for i, f := range r.Findings {
		verdict := "good"
		switch {
		case f.Refused:
			verdict = "refused"
		case f.Text != "":
			verdict = "warning"
		}
		rows[i] = []string{f.Name, f.Value, verdict}
		if f.Text != "" {
			wrong += verdict + ": " + printable(f.Text) + "\n"
		}
	}
	if err := e.printTable([]string{"what", "value", "verdict"}, rows); err != nil || wrong == "" {
		return err
	}
	_, err := fmt.Fprint(e.out, "\n"+wrong)
	return err
}

func storeMigrateCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the tables of a store to the version of this program",
		Long: `Bring the tables of a store to the version of this program, and make them where there are none. 'j17 serve' does the same when it
starts; with this command it can be done before, and by another role. Each step is done as a whole or not at all, and programs that begin
at the same time wait for each other.` + storeHelp,
		Example: "  j17 store migrate --store postgres://j17@db.example.com/j17 --store-password-file password",
	}
	jsonFlag(cmd, &asJSON)
	return onStore(e, cmd, func(cmd *cobra.Command, o *server.StoreOptions) error {
		from, to, err := o.Migrate(cmd.Context(), storeLogger(e))
		switch {
		case err != nil:
			return err
		case asJSON:
			return e.printJSON(map[string]int{"from": from, "to": to})
		case from == to:
			_, err = fmt.Fprintf(e.out, "The tables have version %d already.\n", to)
		case from == 0:
			_, err = fmt.Fprintf(e.out, "The tables were made. They have version %d.\n", to)
		default:
			_, err = fmt.Fprintf(e.out, "The tables had version %d, and have version %d now.\n", from, to)
		}
		return err
	})
}

func storeStatsCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "stats", Short: "Show how much a store holds, and how its server is",
		Long: `Show how much a store holds: environments and events, rows and bytes of each table. And of the server: how many connections it has, how
old the oldest snapshot is, which keeps dead rows from being removed, and how far the standbys are. Rows are those that PostgreSQL has
counted last; no table is read as a whole.` + storeHelp,
		Example: "  j17 store stats --store postgres://j17@db.example.com/j17 --json",
	}
	jsonFlag(cmd, &asJSON)
	return onStore(e, cmd, func(cmd *cobra.Command, o *server.StoreOptions) error {
		s, err := o.Measure(cmd.Context(), storeLogger(e))
		if err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(s)
		}
		return printStoreStats(e, &s)
	})
}

func printStoreStats(e *env, s *server.StoreStats) error {
	if _, err := fmt.Fprintf(e.out, "%s, schema %s: %s of %s, %s.\n%d of %d connections, oldest snapshot %.0f s.\n\n",
		printable(s.Store), printable(s.Schema), j17.Count(int(s.Events), "event"),
		j17.Count(int(s.Tenants), "environment"),
		j17.Count(int(s.Bytes), "byte"), s.Connections, s.Most, s.OldestSnapshotSeconds); err != nil {
		return err
	}
	var tables, standbys [][]string
	for _, t := range s.Tables {
		tables = append(tables, []string{t.Name, fmt.Sprint(t.Rows), fmt.Sprint(t.Dead), fmt.Sprint(t.Bytes)})
	}
	for _, by := range s.Standbys {
		standbys = append(standbys, []string{by.Name, by.State, by.Sync, fmt.Sprint(by.LagBytes)})
	}
	if err := e.printTable([]string{"table", "rows", "dead", "bytes"}, tables); err != nil {
		return err
	}
	return e.printFurther([]string{"standby", "state", "sync", "bytes behind"}, standbys)
}
