package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
	"j17/internal/server"
)

func backupsCommand(e *env) *cobra.Command {
	return group("backup", "Have a server make backups, and list, verify and restore them without one",
		backupCreateCommand(e), backupSettingsCommand(e), backupListCommand(e), backupVerifyCommand(e),
		backupRestoreCommand(e), backupKeygenCommand(e))
}

// repositoryHelp says what FOLDER may be.
const repositoryHelp = `FOLDER is the one of --backups of the server, or s3://BUCKET/PREFIX. For a bucket, the keys are taken from J17_S3_ACCESS_KEY and
J17_S3_SECRET_KEY (or the same with _FILE), or from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.`

// backups are the flags by which commands reach a repository.
type backups struct {
	env                *env
	endpoint, region   string
	identity, id, temp string
	asJSON             bool
}

func (b *backups) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&b.endpoint, "s3-endpoint", "", "`URL` of the S3 server (AWS_ENDPOINT_URL; default that of Amazon for the region)")
	f.StringVar(&b.region, "s3-region", "", "`region` of the bucket (AWS_REGION)")
	jsonFlag(cmd, &b.asJSON)
}

func (b *backups) reading(cmd *cobra.Command) {
	b.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.identity, "identity", "", "`file` with the age identity that opens encrypted backups")
	f.StringVar(&b.id, "backup", "", "`id` of a backup")
}

// open returns the repository that an argument names.
func (b *backups) open(place string) (*repository.Repository, error) {
	if !strings.HasPrefix(place, bucketPrefix) {
		if _, err := os.Stat(place); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil, j17.Errorf(j17.CodeNotFound, "There is no folder %s.", fileName(place))
			}
			return nil, unreadable(place, err)
		}
		return repository.OpenFolder(place, clock.System{}), nil
	}

	o, err := b.bucket(place)
	if err != nil {
		return nil, err
	}
	r, err := repository.OpenS3(o, clock.System{})
	if err != nil {
		return nil, usageError{err}
	}
	return r, nil
}

// bucketPrefix begins what names a bucket, and no folder.
const bucketPrefix = "s3://"

// bucket returns where the bucket is that an argument names, with the keys of the environment.
func (b *backups) bucket(place string) (repository.S3Options, error) {
	rest, ok := strings.CutPrefix(place, bucketPrefix)
	if !ok {
		return repository.S3Options{}, usageError{fmt.Errorf("%q is no bucket, which has the form s3://BUCKET/PREFIX", place)}
	}
	o := repository.S3Options{
		Endpoint: cmp.Or(b.endpoint, b.env.getenv("AWS_ENDPOINT_URL")),
		Region:   cmp.Or(b.region, b.env.getenv("AWS_REGION")),
	}
	o.Bucket, o.Prefix, _ = strings.Cut(rest, "/")
	for into, names := range map[*string][2]string{
		&o.AccessKey: {"J17_S3_ACCESS_KEY", "AWS_ACCESS_KEY_ID"},
		&o.SecretKey: {"J17_S3_SECRET_KEY", "AWS_SECRET_ACCESS_KEY"},
	} {
		own, err := b.env.secret(names[0], "the key")
		if err != nil {
			return o, err
		}
		if *into = cmp.Or(own.value, b.env.getenv(names[1])); *into == "" {
			return o, usageError{fmt.Errorf("a bucket needs its keys: set %s or %s", names[0], names[1])}
		}
	}
	return o, nil
}

// identities reads the file of --identity.
func (b *backups) identities() (repository.Identities, error) {
	if b.identity == "" {
		return repository.Identities{}, nil
	}
	text, err := b.env.readText(b.identity, 1<<20, "It should be a file of age with an identity.")
	if err != nil {
		return repository.Identities{}, err
	}
	keys, err := repository.ReadIdentities(strings.NewReader(string(text)))
	if err != nil {
		return repository.Identities{}, usageError{fmt.Errorf("%s has no age identity, which begins with AGE-SECRET-KEY-: 'j17 backup keygen' writes one", fileName(b.identity))}
	}
	return keys, nil
}

// shownBackup is a backup as it is printed, with the names that the API has.
type shownBackup struct {
	ID          string                                 `json:"id"`
	Status      string                                 `json:"status"`
	Scope       repository.Scope                       `json:"scope"`
	Instance    string                                 `json:"instance,omitempty"`
	Name        string                                 `json:"instance_name,omitempty"`
	Environment j17.Environment                        `json:"environment,omitempty"`
	Kind        repository.Kind                        `json:"kind"`
	Parent      *string                                `json:"parent"`
	Encrypted   bool                                   `json:"encrypted"`
	Recipients  []string                               `json:"recipients,omitempty"`
	Bytes       int64                                  `json:"bytes"`
	Position    *string                                `json:"position,omitempty"`
	Size        *uint64                                `json:"size,omitempty"`
	Root        string                                 `json:"root,omitempty"`
	Positions   map[string]map[j17.Environment]*string `json:"positions,omitempty"`
	CreatedAt   time.Time                              `json:"created_at"`
	CompletedAt time.Time                              `json:"completed_at"`
}

func showBackup(m *repository.Manifest) shownBackup {
	s := shownBackup{
		ID: m.ID, Status: "completed", Scope: m.Scope, Kind: m.Kind, Encrypted: m.Encrypted(), Recipients: m.Recipients,
		Bytes: m.Bytes, CreatedAt: m.CreatedAt, CompletedAt: m.CompletedAt,
	}
	if m.Parent != "" {
		s.Parent = &m.Parent
	}
	for i := range m.Tenants {
		t := &m.Tenants[i]
		switch {
		case m.Scope == repository.OfEnvironment:
			s.Instance, s.Name, s.Environment = t.Instance, t.Name, t.Environment
			s.Position, s.Size, s.Root = positionOf(t), &t.Size, fmt.Sprintf("%x", t.Root)
		case t.Tenant != j17.System:
			if s.Positions == nil {
				s.Positions = map[string]map[j17.Environment]*string{}
			}
			if s.Positions[t.Instance] == nil {
				s.Positions[t.Instance] = map[j17.Environment]*string{}
			}
			s.Positions[t.Instance][t.Environment] = positionOf(t)
		}
	}
	return s
}

// positionOf is the position of the last event that a backup has of an environment, nil where that has none.
func positionOf(t *repository.TenantManifest) *string {
	if t.Size == 0 {
		return nil
	}
	return new(t.Position.String())
}

func backupListCommand(e *env) *cobra.Command {
	b := &backups{env: e}
	cmd := &cobra.Command{
		Use: "list FOLDER", Short: "List the backups in a folder or a bucket, newest first",
		Long: "List the backups in a folder or a bucket, the newest first. That needs no key.\n\n" + repositoryHelp +
			"\n\nExit code 6: there is no backup. 7: one cannot be read; the others are listed.",
		Example: "  j17 backup list j17-data-backups\n  j17 backup list s3://backups/j17 --s3-endpoint https://s3.example.com", Args: exactly("FOLDER"),
	}
	b.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := b.open(args[0])
		if err != nil {
			return err
		}
		all, damaged, err := r.Manifests(cmd.Context())
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		if len(all) == 0 && len(damaged) == 0 {
			return noBackup(r)
		}
		shown := make([]shownBackup, len(all))
		for i := range all {
			shown[i] = showBackup(&all[i])
		}
		if err := b.print(shown); err != nil {
			return err
		}
		for _, d := range damaged[min(1, len(damaged)):] {
			e.note("%v\n", d)
		}
		if len(damaged) > 0 {
			return damaged[0]
		}
		return nil
	}
	return cmd
}

// noBackup is the error of a place without backups.
func noBackup(r *repository.Repository) error {
	return j17.Errorf(j17.CodeNotFound, "There is no backup in %s.", r)
}

// print shows backups as JSON or as a table.
func (b *backups) print(all []shownBackup) error {
	if b.asJSON {
		return b.env.printJSON(map[string]any{"backups": all})
	}
	rows := make([][]string, len(all))
	for i, s := range all {
		of, sealed := "server", ""
		if s.Scope == repository.OfEnvironment {
			of = s.Instance + "/" + string(s.Environment)
			if s.Name != "" {
				of += " (" + s.Name + ")"
			}
		}
		if s.Encrypted {
			sealed = "yes"
		}
		rows[i] = []string{s.ID, when(s.CreatedAt), of, string(s.Kind), fmt.Sprint(s.Bytes), sealed}
	}
	return b.env.printTable([]string{"id", "made", "of", "kind", "bytes", "encrypted"}, rows)
}

func backupVerifyCommand(e *env) *cobra.Command {
	b := &backups{env: e}
	cmd := &cobra.Command{
		Use: "verify FOLDER", Short: "Check that backups are complete and can be restored",
		Long: `Check all backups in a folder or a bucket, or one: each part is read and compared with its name, the roots of the logs are recomputed
and compared with those that the server has signed, and the newest backup of the server and of each environment is restored into a
temporary folder.

` + repositoryHelp + `

Exit code 5: they are encrypted to somebody else. 6: there is none. 7: a file is damaged; it is named.`,
		Example: "  j17 backup verify j17-data-backups\n  j17 backup verify j17-data-backups --identity identity.txt --json", Args: exactly("FOLDER"),
	}
	b.reading(cmd)
	cmd.Flags().StringVar(&b.temp, "temp", "", "`folder` for what is restored meanwhile (default that of the system)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := b.open(args[0])
		if err != nil {
			return err
		}
		keys, err := b.identities()
		if err != nil {
			return err
		}

		// Each backup has a bar of its own.
		var bar *readBar
		o := server.VerifyOptions{
			Repository: r, Identities: keys, Backup: b.id, Temp: b.temp, Clock: clock.System{}, Logger: quietLogger(e),
			Verified: func(id string) { bar.done(); bar = e.readBar(id) },
			Progress: func(done, total int64) { bar.show(done, total) },
		}
		all, err := server.Verify(cmd.Context(), o)
		bar.done()
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		if len(all) == 0 {
			return noBackup(r)
		}
		shown := make([]shownBackup, len(all))
		for i := range all {
			shown[i] = showBackup(&all[i])
		}
		if b.asJSON {
			return b.print(shown)
		}
		_, err = fmt.Fprintf(e.out, "Verified %s: each part, the roots of the logs, and a restoration of the newest.\n", j17.Count(len(all), "backup"))
		return err
	}
	return cmd
}

// readBar shows how much of a backup was read, on a terminal. nil shows nothing.
type readBar struct {
	bar *progressbar.ProgressBar
}

func (e *env) readBar(what string) *readBar {
	if !terminal(e.err) {
		return nil
	}
	return &readBar{progressbar.NewOptions64(-1, progressbar.OptionSetWriter(e.terminalErr()),
		progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(barInterval), progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish())}
}

func (r *readBar) show(done, total int64) {
	if r != nil {
		r.bar.ChangeMax64(total)
		_ = r.bar.Set64(done) // it is decoration
	}
}

func (r *readBar) done() {
	if r != nil {
		_ = r.bar.Finish() // it is decoration
	}
}

// quietLogger is for work whose outcome the command reports itself.
func quietLogger(e *env) *slog.Logger { return slog.New(slog.DiscardHandler) }

func backupRestoreCommand(e *env) *cobra.Command {
	b := &backups{env: e}
	var data, at, position, environment string
	var into server.StoreOptions
	cmd := &cobra.Command{
		Use: "restore FOLDER", Short: "Restore a data folder, or a store on PostgreSQL, from a backup",
		Long: `Restore a data folder from a backup: from the newest one, or from that of --backup. 'j17 dev' and 'j17 serve' run on it. What is restored has the
bytes, positions and proofs that it had, and what was erased after the backup is erased again.

With --at or --position, events end there, and so do names and deployments of specs. Files stay as of the backup. Data that is derived from
events is rebuilt. Work that was pending at the moment of the backup (schedules, sagas, deliveries) is left out: it belongs to a later
moment.

The backup of an environment becomes a folder with an instance of the old id, with no operators, keys, or other environments. With
--environment the same is made of a server's backup.

The data folder must not exist or be empty. It is there when all of it is: after a failure or a crash, run the same command again.

With --store the same goes to a schema of PostgreSQL, which must not exist or be empty, for servers with the secret of
--node-secret-file. Without a node secret the key of the store is in the folder of --data, which the server then needs. Servers that are
started on the schema meanwhile wait for the end; where one works already, the command is refused.

` + repositoryHelp + `

Exit code 5: the backup is encrypted to somebody else. 6: there is no such backup, or it does not reach that moment. 7: a file is
damaged; it is named.`,
		Example: "  j17 backup restore j17-data-backups --data restored\n  j17 backup restore s3://backups/j17 --data restored --identity identity.txt --at 2026-01-31T12:00:00Z",
		Args:    exactly("FOLDER"),
	}
	b.reading(cmd)
	f := cmd.Flags()
	f.StringVar(&data, "data", "", "data `folder` to make")
	f.StringVar(&at, "at", "", "`time` up to which events are restored: Unix seconds, or as in 2026-01-31T12:00:00Z")
	f.StringVar(&position, "position", "", "`stream id` of the last event that is restored")
	storeFlags(f, &into)
	secretFlag(f, &into)
	f.StringVar(&environment, "environment", "", "one `environment` of a server's backup: INSTANCE/prod, by the instance's id or name")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// What is asked for.
		var problems []error
		if data == "" || cmd.Flags().Changed(storeFlag) {
			problems = e.storeSettings(cmd.Flags(), &into)
		}
		o := server.RestoreOptions{
			Backup: b.id, Environment: environment, Dir: data, Store: into, Clock: clock.System{},
			Logger: quietLogger(e),
		}
		if problems = append(problems, o.Check()...); len(problems) > 0 {
			return usageError{errors.Join(problems...)}
		}
		var err error
		if o.Until, err = until(at, position); err != nil {
			return err
		}
		if o.Repository, err = b.open(args[0]); err != nil {
			return err
		}
		if o.Identities, err = b.identities(); err != nil {
			return err
		}

		bar := e.readBar("restored")
		o.Progress = bar.show
		out, err := server.Restore(cmd.Context(), o)
		bar.done()
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		return b.restored(&o, out, b.id == "")
	}
	return cmd
}

// until reads where a restoration ends.
func until(at, position string) (server.Until, error) {
	var u server.Until
	if at != "" && position != "" {
		return u, usageError{errors.New("--at and --position both say where to end: give one of them")}
	}
	if position != "" {
		var err error
		if u.Position, err = j17.ParseStreamID(position); err != nil {
			return u, usageError{fmt.Errorf("--position: %w", err)}
		}
	}
	if at != "" {
		seconds, err := parseTime(clock.System{}.Now(), "--at", at)
		if err != nil {
			return u, usageError{err}
		}
		if seconds > math.MaxInt64/1000-1 {
			return u, usageError{fmt.Errorf("--at cannot be %s: there is no such time", at)}
		}
		u.Time = seconds*1000 + 999 // the end of the second
	}
	return u, nil
}

// restoredTenant is what --json shows of an environment that was restored.
type restoredTenant struct {
	Tenant   j17.Tenant `json:"tenant"`
	Events   uint64     `json:"events"`
	Position string     `json:"position"`
	Root     string     `json:"root"`
	// Past reports that pending work was left out, Erased how many aggregates had data erased again.
	Past   bool `json:"past"`
	Erased int  `json:"erased"`
}

// restored reports what was restored; newest reports that the backup was not named.
func (b *backups) restored(o *server.RestoreOptions, out server.Restored, newest bool) error {
	rows := []restoredTenant{}
	var events uint64
	past, erased := false, 0
	for _, t := range out.Tenants {
		if t.Tenant == j17.System {
			continue
		}
		rows = append(rows, restoredTenant{
			t.Tenant, t.Events, t.Position.PositionText(), fmt.Sprintf("%x", t.Root), t.Past, t.Erased,
		})
		events, past, erased = events+t.Events, past || t.Past, erased+t.Erased
	}
	if b.asJSON {
		shown := map[string]any{"backup": out.Backup.ID, "data": o.Dir, "tenants": rows}
		if o.Store.Given() {
			shown["store"] = o.Store.String()
		}
		return b.env.printJSON(shown)
	}
	place, kind := fileName(o.Dir), "folder"
	if o.Store.Given() {
		place, kind = printable(o.Store.String()), "store"
	}
	text := fmt.Sprintf("Restored %s of %s from the backup %s to %s.\n", j17.Count(int(events), "event"), j17.Count(len(rows), "environment"), out.Backup.ID, place)
	if newest && out.Backup.Scope == repository.OfEnvironment {
		text += "The newest backup is of this environment alone: the " + kind + " has no operators, keys or other environments. Backups of the whole server are with 'server' in 'j17 backup list'; --backup takes one.\n"
	}
	if past {
		text += "Schedules, sagas and deliveries that were pending at the moment of the backup were left out.\n"
	}
	if erased > 0 {
		text += fmt.Sprintf("What was erased of %s after the backup was erased again.\n", j17.Count(erased, "aggregate"))
	}
	_, err := fmt.Fprint(b.env.out, text)
	return err
}

func backupKeygenCommand(e *env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "keygen", Short: "Make a key pair for encrypted backups", Args: noArgs,
		Long: `Make a key pair for encrypted backups. The file gets the private key (an age identity), which opens backups: keep it away from the
server, and more than once. The recipient, which is printed, goes into the settings of backups. If the identity is lost, so are the
backups.`,
		Example: "  j17 backup keygen -o identity.txt",
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write, which must not exist")
	cmd.RunE = func(*cobra.Command, []string) error {
		if output == "" {
			return usageError{errors.New("name the file for the identity with -o")}
		}
		text, recipient, err := repository.NewIdentity()
		if err != nil {
			return err
		}
		if err := writeIdentity(output, text); err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.out, recipient)
		return err
	}
	return cmd
}

// writeIdentity writes a file that only its owner may read, and that was not there.
func writeIdentity(name, text string) error {
	//nolint:gosec // the file that the caller names
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already, and may be the only key of some backups: name another file", fileName(name))
	}
	if err != nil {
		return fmt.Errorf("the file %s cannot be made: %w", fileName(name), pathless(err))
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(
			fmt.Errorf("the file %s cannot be written: %w", fileName(name), pathless(err)), os.Remove(name),
		)
	}
	return nil
}

// damagedBackup reports whether an error is about a file of a backup that is not as it should be, and locked whether it
// is about a key.
func damagedBackup(err error) (damaged, locked bool) {
	_, damaged = errors.AsType[*repository.DamagedError](err)
	_, locked = errors.AsType[*repository.IdentityError](err)
	return damaged, locked
}
