package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
)

func blobsCommand(e *env) *cobra.Command {
	return group("blobs", "The code of an environment: WebAssembly modules and archives", blobsPutCommand(e), blobsListCommand(e), blobsGetCommand(e), blobsDeleteCommand(e))
}

// opsPath is where the administration of the environment is that a command is about.
func (o *operating) opsPath(ctx context.Context, more ...string) ([]string, error) {
	env, err := o.environment(j17.Prod)
	if err != nil {
		return nil, err
	}
	i, err := o.chosenInstance(ctx)
	return append([]string{"instances", i.ID, "ops", string(env)}, more...), err
}

// blobPath is where the blobs of that environment are.
func (o *operating) blobPath(ctx context.Context, more ...string) ([]string, error) {
	return o.opsPath(ctx, append([]string{"blobs"}, more...)...)
}

// opsFlags adds the flags that say which environment a command of operators is about.
func opsFlags(cmd *cobra.Command) *remote {
	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	environmentFlag(cmd, r)
	return r
}

func blobsPutCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "put FILE [NAME]", Short: "Upload a file as the next version of a blob",
		Long: `Upload a file as the next version of a blob. NAME is the name that specs use; without it, it is the file's. The same content again
is no new version.`,
		Example: "  j17 blobs put build/orders.wasm --env staging\n  j17 blobs put image.tar order-processor --env staging",
		Args: func(cmd *cobra.Command, args []string) error {
			return exactly([]string{"FILE", "NAME"}[:min(max(len(args), 1), 2)]...)(cmd, args)
		},
	}

	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		// The content comes from a file or from standard input, and has a name in either case.
		name := filepath.Base(args[0])
		if len(args) > 1 {
			name = args[1]
		}
		file := e.interruptible(e.in)
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return unreadable(args[0], err)
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			file = f
		} else if len(args) < 2 {
			return usageError{errors.New("a blob from standard input needs a NAME")}
		}

		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.putBlob(cmd.Context(), name, file)
		if err != nil {
			return err
		}

		// The blob is stored: an error from here on is only reported.
		var b wire.Blob
		if err := json.Unmarshal(raw, &b); err != nil {
			return fmt.Errorf("the blob is stored, but the server's answer cannot be read: %w", err)
		}
		e.reportChange("the blob is stored as %s:v%d", plain(b.Name), b.Version)
		if asJSON {
			return e.printJSON(raw)
		}
		_, err = fmt.Fprintf(e.out, "%s:v%d, %s\n", plain(b.Name), b.Version, j17.Count(int(b.Size), "byte"))
		return err
	}
	return cmd
}

func (o *operating) putBlob(ctx context.Context, name string, file io.Reader) (json.RawMessage, error) {
	path, err := o.blobPath(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Blob json.RawMessage `json:"blob"`
	}
	err = o.change(
		ctx, true, func() error { return o.Upload(ctx, append([]string{"api"}, path...), name, file, &answer) },
	)
	return answer.Blob, err
}

func blobsListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list [NAME]", Short: "List the blobs of an environment, or the versions of one",
		Example: "  j17 blobs list --env staging\n  j17 blobs list orders.wasm --env staging", Args: atMost("NAME"),
	}

	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}

		// All blobs, or all versions of one.
		var more []string
		plural := "blobs"
		if len(args) > 0 {
			more, plural = []string{args[0], "versions"}, "versions"
		}
		path, err := o.blobPath(cmd.Context(), more...)
		if err != nil {
			return err
		}

		rows, err := o.rows(cmd.Context(), path, nil, plural, 0)
		if err != nil {
			return err
		}
		return printRows(e, rows, asJSON, []string{"name", "version", "size", "sha256", "created"},
			func(b wire.Blob) []string {
				return []string{
					b.Name, "v" + strconv.Itoa(b.Version), strconv.FormatInt(b.Size, 10),
					b.SHA256[:min(12, len(b.SHA256))], when(b.CreatedAt),
				}
			})
	}
	return cmd
}

func blobsGetCommand(e *env) *cobra.Command {
	var version uint64
	var output string
	cmd := &cobra.Command{
		Use: "get NAME", Short: "Download a blob", Args: exactly("NAME"),
		Long:    "Download a blob, to standard output or to a file that does not exist yet. What has arrived is compared with its hash.",
		Example: "  j17 blobs get orders.wasm --version 2 -o orders.wasm --env staging",
	}

	r := opsFlags(cmd)
	versionFlag(cmd, &version, "the latest")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write")

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if output == "" && terminal(e.out) {
			return usageError{errors.New("blobs are no text for a terminal: name a file with -o, or redirect the output")}
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.blobPath(cmd.Context(), args[0])
		if err != nil {
			return err
		}

		// The answer is as large as the blob, so it is written out without being kept.
		body, header, err := o.Download(cmd.Context(), append([]string{"api"}, path...), versionQuery(version))
		if err != nil {
			return o.explained(cmd.Context(), err)
		}
		defer func() { err = interrupted(cmd.Context(), errors.Join(err, body.Close())) }()

		return e.save(output, func(out io.Writer) error {
			sum := sha256.New()
			if _, err := io.Copy(io.MultiWriter(out, sum), body); err != nil {
				return err
			}
			if want := header.Get("Etag"); want != "" && want != `"`+hex.EncodeToString(sum.Sum(nil))+`"` {
				return errors.New("what has arrived is not what was uploaded: its hash is another. Try again")
			}
			return nil
		})
	}
	return cmd
}

// save writes a download to a file that does not exist yet, and removes it if that fails, or to standard output for "".
func (e *env) save(output string, write func(io.Writer) error) (err error) {
	if output == "" {
		return write(e.out)
	}
	f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a download like any other
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", fileName(output), err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(output))
		}
	}()
	return write(f)
}

// versionFlag declares a flag that takes the number of a version; without says what is meant when it is left out.
func versionFlag(cmd *cobra.Command, version *uint64, without string) {
	cmd.Flags().Var((*versionNumber)(version), "version", "`number` of the version; "+without+" if left out")
}

const versionFlagType = "version"

// versionNumber is the value of such a flag: 0 where it was left out, since versions count from 1.
type versionNumber uint64

func (v *versionNumber) Type() string { return versionFlagType }

// String is empty where no version is given, so that none is shown as the default.
func (v *versionNumber) String() string {
	if *v == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(*v), 10)
}

// Set reads a value from the command line.
func (v *versionNumber) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	*v = versionNumber(n)
	return err
}

func versionQuery(version uint64) url.Values {
	q := url.Values{}
	if version > 0 {
		q.Set("version", strconv.FormatUint(version, 10))
	}
	return q
}

func blobsDeleteCommand(e *env) *cobra.Command {
	var version uint64
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a blob, or one version of it", Args: exactly("NAME"),
		Long:    "Delete all versions of a blob, or one with --version. What the deployed spec uses cannot be deleted.",
		Example: "  j17 blobs delete orders.wasm --version 1 --env staging",
	}

	r := opsFlags(cmd)
	versionFlag(cmd, &version, "all")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.blobPath(cmd.Context(), args[0])
		if err != nil {
			return err
		}

		// What is deleted, in words that a person can confirm.
		what := "all versions of " + plain(args[0])
		if version > 0 {
			what = fmt.Sprintf("version %d of %s", version, plain(args[0]))
		}
		env := cmp.Or(o.connection.env.value, string(j17.Prod))
		if err := e.confirm(cmd.Context(), yes, fmt.Sprintf("Delete %s in %s?", what, env)); err != nil {
			return err
		}

		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodDelete, path, versionQuery(version), nil, &raw); err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(struct {
				Name        string `json:"name"`
				Version     uint64 `json:"version,omitempty"`
				Environment string `json:"environment"`
				Deleted     bool   `json:"deleted"`
			}{args[0], version, env, true})
		}
		_, err = fmt.Fprintf(e.out, "Deleted %s in %s.\n", what, env)
		return err
	}
	return cmd
}
