package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"j17"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/server"
)

func serveCommand(e *env) *cobra.Command {
	var o server.ServeOptions
	var config string
	var asJSON, verbose, check bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a server for others",
		Long: `Run a server for others: over TLS, with operators, instances and keys of their own.

Each flag can be set by a variable of the environment as well, J17_ and its name in capitals (J17_BASE_DOMAIN), and in the file
that --config names: one JSON object with the names of flags, hyphens as underscores ("base_domain"). A flag counts before a
variable, a variable before the file.

At the first start, a URL for creating the first operator is printed on standard error.`,
		Example: "  j17 serve --data /var/lib/j17 --base-domain example.com --listen :443 --acme",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// All faults of the settings, at once.
			o.Store.AddressShown = cmd.Flags().Changed(storeFlag)
			problems := configure(cmd.Flags(), e.getenv)
			o.CheckOnly = check
			problems = append(problems, o.Check()...)
			unknown := unknownVariables(e.environ(), cmd.Flags())
			if check || len(problems) > 0 {
				problems = append(problems, unknown...)
			}
			if len(problems) > 0 {
				var b strings.Builder
				for _, p := range problems {
					fmt.Fprintf(&b, "j17 serve: %v\n", p)
				}
				_, _ = io.WriteString(e.err, b.String()) // there is nowhere else to say it
				return silent{usageError{errors.Join(problems...)}}
			}

			if check {
				_, err := fmt.Fprintln(e.out, "The settings are good.")
				return err
			}

			// The log, and where it goes.
			stderr := &lockedWriter{w: e.err}
			o.Logger = serveLogger(stderr, asJSON, verbose)
			o.Clock = clock.System{}
			o.Version = programVersion
			o.SetupURL = func(url string) { showSetup(stderr, url, asJSON) }
			for _, err := range unknown {
				o.Logger.LogAttrs(cmd.Context(), slog.LevelWarn, "a variable of the environment is no setting and has no effect", slog.String("variable", err.Error()))
			}
			reload, stop := hangups()
			defer stop()
			o.Reload = reload
			tuneRuntime(e.getenv, &o.Options)

			// The server is open before it reports that it is ready. One that another node has replaced waits for its
			// turn again.
			for {
				s, err := server.OpenServe(cmd.Context(), o)
				if err != nil {
					return portTaken(err)
				}
				if err = showReady(e.out, s.Ready(), asJSON); err == nil {
					err = s.Run(cmd.Context())
				}
				replaced := errors.Is(err, server.ErrReplaced)
				if err = errors.Join(err, s.Close()); !replaced || cmd.Context().Err() != nil {
					return err
				}
			}
		},
	}

	f := cmd.Flags()
	f.StringVar(&config, configFlag, "", "configuration `file`")
	f.BoolVar(&check, checkFlag, false, "check the settings, open nothing, and end")
	f.BoolVar(&asJSON, "json", false, "log in JSON, and print one line of JSON when the server is ready")
	f.BoolVar(&verbose, "verbose", false, "log every request")
	serveFlags(f, &o)
	limitFlags(f, &o.Options)
	backupFlags(f, &o.Options)
	f.BoolVar(&o.NoBackups, "no-backups", false, "make no backups by the clock unless settings of backups say so, and do not try their folder")
	containerFlags(f, &o.Options)
	proofFlags(f, &o.Options)
	dashboardFlags(f, &o.Options)
	return cmd
}

// Flags that configure treats in a way of their own.
const (
	configFlag = "config"
	checkFlag  = "check"
)

func serveFlags(f *pflag.FlagSet, o *server.ServeOptions) {
	// Where it is.
	f.StringVar(&o.Dir, "data", "", "data `folder`; beside --store, that of what may be lost")
	storeFlags(f, &o.Store)
	readsFlag(f, &o.Store)
	erasureFlag(f, &o.Options, server.DefaultEraseEvery)
	f.StringVar(&o.BaseDomain, "base-domain", "", "`domain` under which instances have their hosts")
	f.StringVar(&o.DefaultInstance, "default-instance", "", "`name` of the instance that answers for the base domain itself")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:17000", "public `address`")
	f.StringVar(&o.InternalListen, "internal-listen", "127.0.0.1:17001", "internal `address`: other nodes, metrics and health")
	f.StringVar(&o.HTTPListen, "http-listen", ":80", "`address` of plain HTTP beside TLS, which leads there; empty for none")

	// How it is reached safely.
	f.StringVar(&o.Certificate.CertFile, "tls-cert", "", "`file` with the certificate and those between it and the root")
	f.StringVar(&o.Certificate.KeyFile, "tls-key", "", "`file` with the key of the certificate")
	f.StringVar(&o.TLSMin, "tls-min", "1.3", "lowest `version` of TLS: 1.3 or 1.2")
	f.BoolVar(&o.ACME.On, "acme", false, "get certificates from an authority, whose terms you accept")
	f.StringVar(&o.ACME.Email, "acme-email", "", "`address` that the authority writes to")
	f.StringVar(&o.ACME.Directory, "acme-directory", "", "`URL` of the authority's directory; empty for Let's Encrypt")
	f.StringVar(&o.ACME.CAFile, "acme-ca", "", "`file` with certificates by which the authority's own is checked")
	f.StringSliceVar(&o.Proxies, "trusted-proxy", nil, "`network` of proxies in front of the server; can be repeated")
	f.StringVar((*string)(&o.ForwardedHeader), "forwarded-header", "X-Forwarded-For", "`header` in which the proxies pass on addresses of clients: X-Forwarded-For or Forwarded")

	// Who may do how much.
	f.IntVar(&o.KeyRate, "rate-limit-per-key", 60_000, "requests a minute of each API key whose plan says nothing else; 0 for no limit")
	f.IntVar(&o.AddressRate, "rate-limit-per-ip", 60_000, "requests a minute of each client address; 0 for no limit")
	f.StringVar(&o.OperatorEmail, "operator-email", "", "`address` of a platform admin to create unless there is one")
	f.StringVar(&o.OperatorPasswordFile, "operator-password-file", "", "`file` with the password of that operator")

	// What instances may use.
	f.StringVar(&o.PlansFile, "plans-file", "", "`file` with the plans of instances, a JSON array")
	f.StringVar(&o.Webhook.URL, "alert-webhook", "", "`URL` that alerts about usage are posted to")
	f.StringVar(&o.WebhookSecretFile, "alert-webhook-secret-file", "", "`file` with the secret that signs those posts")
	f.StringVar(&o.Mail.Host, "alert-mail-host", "", "mail `server` that sends alerts about usage")
	f.IntVar(&o.Mail.Port, "alert-mail-port", 0, "`port` of the mail server; 0 for the usual one")
	f.StringVar((*string)(&o.Mail.TLS), "alert-mail-tls", "starttls", "`mode` of TLS with the mail server: starttls, tls or none")
	f.StringVar(&o.Mail.User, "alert-mail-user", "", "`name` to log in to the mail server with")
	f.StringVar(&o.MailPasswordFile, "alert-mail-password-file", "", "`file` with the password of that name")
	f.StringVar(&o.Mail.From, "alert-mail-from", "", "`address` that alerts are sent from")
	f.StringSliceVar(&o.Mail.To, "alert-mail-to", nil, "`address` that gets every alert; without one, those who manage the instance do")

	// What it is among several.
	f.StringVar((*string)(&o.Role), "role", string(server.RoleAll), "`part` of this server: all, headnode or worker")
	f.StringVar(&o.NodeSecretFile, "node-secret-file", "", "`file` with the secret that all nodes share")
	f.StringVar(&o.Node, "node", "", "`name` of this worker, or of this server among those on a database; empty for the machine and the port")
	f.StringVar(&o.Headnode, "headnode", "", "`URL` of the headnode's internal listener")
	f.StringVar(&o.PublicURL, "public-url", "", "`URL` at which clients reach this worker; empty for its address")
	f.StringVar(&o.InternalURL, "internal-url", "", "`URL` at which other servers reach this one; empty for its internal address")
	f.StringVar(&o.InternalCertificate.CertFile, "internal-tls-cert", "", "`file` with the certificate of the internal listener")
	f.StringVar(&o.InternalCertificate.KeyFile, "internal-tls-key", "", "`file` with the key of that certificate")
	f.StringVar(&o.InternalCAFile, "internal-ca", "", "`file` with certificates by which those of other nodes are checked")
}

// configure sets flags that are not on the command line from the environment and the configuration file, and returns
// all faults of these.
func configure(flags *pflag.FlagSet, getenv func(string) string) []error {
	problems := fromVariables(flags, getenv, func(f *pflag.Flag) bool { return isSetting(f) || f.Name == configFlag })

	// The file, which is checked even where a flag or a variable overrides it.
	file := flags.Lookup(configFlag).Value.String()
	if file == "" {
		return problems
	}
	members, err := readSettings(file)
	if err != nil {
		return append(problems, fmt.Errorf("%s: %w", file, err))
	}
	var known []string
	flags.VisitAll(func(f *pflag.Flag) {
		if isSetting(f) {
			known = append(known, strings.ReplaceAll(f.Name, "-", "_"))
		}
	})

	for _, m := range members {
		if !slices.Contains(known, m.name) {
			hint := ""
			if near := diag.Nearest(m.name, known); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			problems = append(problems, fmt.Errorf("%s: there is no setting %q%s", file, m.name, hint))
			continue
		}
		if f := flags.Lookup(strings.ReplaceAll(m.name, "_", "-")); !f.Changed {
			if m.err != nil {
				problems = append(problems, fmt.Errorf("%s: %s: %w", file, m.name, m.err))
				continue
			}
			if takesText := f.Value.Type() == "string" || f.Value.Type() == "stringSlice"; takesText && !m.isText {
				problems = append(problems, fmt.Errorf("%s: %s takes a text in quotes, not %s", file, m.name, m.text))
				continue
			}
			if err := setFlag(flags, f, file, m.text); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

// fromVariables sets flags that are not on the command line from the environment, and returns all faults.
func fromVariables(flags *pflag.FlagSet, getenv func(string) string, is func(*pflag.Flag) bool) (problems []error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := variableOf(f.Name)
		if text := getenv(name); text != "" && !f.Changed && is(f) {
			if err := setFlag(flags, f, name, text); err != nil {
				problems = append(problems, err)
			}
		}
	})
	return problems
}

// setFlag sets a flag to a text from somewhere else than the command line.
func setFlag(flags *pflag.FlagSet, f *pflag.Flag, source, text string) error {
	if flags.Set(f.Name, text) != nil {
		return fmt.Errorf("%s: %q is not what %s takes, which is %s", source, text, f.Name, taken(f))
	}
	return nil
}

// fileSetting is one member of a configuration file, as the text that its flag takes.
type fileSetting struct {
	name, text string
	// isText is true for a string or a list of strings.
	isText bool
	err    error
}

func readSettings(file string) ([]fileSetting, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	if _, err := value.Parse(raw); err != nil { // which is stricter: it refuses names that are there twice
		return nil, fmt.Errorf("it is no JSON: %w", err)
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, errors.New("it must hold one JSON object")
	}
	var all []fileSetting
	for name, v := range object {
		s := fileSetting{name: name}
		s.text, s.err = settingText(v)
		switch v.(type) {
		case string, []any:
			s.isText = true
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b fileSetting) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

func settingText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case []any:
		var parts []string
		for _, item := range v {
			s, ok := item.(string)
			if !ok {
				return "", errors.New("a list holds strings only")
			}
			parts = append(parts, s)
		}
		return strings.Join(parts, ","), nil
	default:
		return "", errors.New("a setting is a string, a number, true, false or a list of strings")
	}
}

func serveLogger(w io.Writer, asJSON, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	options := logOptions(level)
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// logOptions are the options of all logs of servers: only those parts of errors are logged that may be kept, so that no
// event data get there.
func logOptions(level slog.Leveler) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(j17.Record(err))
		}
		return a
	}}
}

// showSetup shows where to create the first operator. The URL is all that this takes, so it goes to the terminal and to
// no log.
func showSetup(w io.Writer, url string, asJSON bool) {
	text := fmt.Sprintf("\nThere is no operator yet. Create the first one at\n\n  %s\n\nThe URL works once, for a day. After that, restart the server for another one.\n\n", url)
	if asJSON {
		raw, _ := json.Marshal(struct { // strings only
			SetupURL string `json:"setup_url"`
		}{url})
		text = string(raw) + "\n"
	}
	_, _ = io.WriteString(w, text) // there is nowhere else to say it
}

func showReady(w io.Writer, r server.ServeReady, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	text := fmt.Sprintf("j17 %s is ready (role %s).\n  public    %s\n  internal  %s\n", r.Version, r.Role, r.Addresses["public"], r.Addresses["internal"])
	if r.URLs["control"] != "" {
		text += "  control   " + r.URLs["control"] + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// hangups passes on each SIGHUP, which asks the server to read certificates again. From then on the signal no longer
// ends the program.
func hangups() (<-chan struct{}, func()) {
	signals, out, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Ignore(syscall.SIGHUP) // main takes it for an end; with Reset it would be one until the next line
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-signals:
			case <-done:
				return
			}
			select {
			case out <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(signals)
		close(done)
	}
}
