package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17/internal/base/wire"
)

// noPlace is what --s3 and --recipient take for no bucket and no encryption.
const noPlace = "none"

func backupSettingsCommand(e *env) *cobra.Command {
	var wholeServer, asJSON bool
	var hours, last, days int
	var bucket string
	var recipients []string
	b := &backups{env: e}
	cmd := &cobra.Command{
		Use: "settings", Short: "Print or set how often backups are made, how many are kept, and where", Args: noArgs,
		Long: `Print how backups of an instance, in all its environments, or with --whole-server of the whole server, are made and kept. With any of the
other flags these settings are changed first; 0 and none take a setting away. A file is written where backups go then, read and removed:
where that fails, as with a wrong key of a bucket, nothing is changed.

The keys of a bucket are taken from J17_S3_ACCESS_KEY and J17_S3_SECRET_KEY (or the same with _FILE), or from AWS_ACCESS_KEY_ID and
AWS_SECRET_ACCESS_KEY. The server keeps the secret key sealed and shows it to nobody.`,
		Example: `  j17 backup settings --whole-server
  j17 backup settings --instance shop --every-hours 1 --keep-last 48
  j17 backup settings --whole-server --s3 s3://backups/j17 --s3-endpoint https://s3.example.com`,
	}
	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	f := cmd.Flags()
	f.BoolVar(&wholeServer, "whole-server", false, "of the whole server, and not of an instance")
	f.IntVar(&hours, "every-hours", 0, "make one so many `hours` after the last; 0 for none by the clock")
	f.IntVar(&last, "keep-last", 0, "keep this `number` of backups; 0 for any")
	f.IntVar(&days, "keep-days", 0, "keep backups for so many `days`; 0 for ever")
	f.StringArrayVar(&recipients, "recipient", nil, "encrypt backups to this `recipient`, as 'j17 backup keygen' prints it; can be repeated; none to leave them in clear")
	f.StringVar(&bucket, "s3", "", "`s3://BUCKET/PREFIX` that backups go to; none for the server's folder")
	f.StringVar(&b.endpoint, "s3-endpoint", "", "`URL` of the S3 server (AWS_ENDPOINT_URL; default that of Amazon for the region)")
	f.StringVar(&b.region, "s3-region", "", "`region` of the bucket (AWS_REGION)")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// What is to change.
		if wholeServer && f.Changed("instance") {
			return usageError{errors.New("--whole-server is of all there is: leave --instance out")}
		}
		if bucket == "" && (f.Changed("s3-endpoint") || f.Changed("s3-region")) {
			return usageError{errors.New("--s3-endpoint and --s3-region are of a bucket: name it with --s3")}
		}
		change, err := b.settingsChange(
			f, map[string]int{"every-hours": hours, "keep-last": last, "keep-days": days}, recipients, bucket,
		)
		if err != nil {
			return err
		}

		// Of what.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path := []string{"backup_settings"}
		if !wholeServer {
			instance, err := o.chosenInstance(cmd.Context())
			if err != nil {
				return err
			}
			path = []string{"instances", instance.ID, "backup_settings"}
		}

		var raw json.RawMessage
		if len(change) == 0 {
			err = o.call(cmd.Context(), http.MethodGet, path, nil, nil, &raw)
		} else {
			err = o.call(cmd.Context(), http.MethodPut, path, url.Values{"try": {"true"}}, change, &raw)
		}
		if err != nil {
			return err
		}
		return printBackupSettings(e, raw, asJSON)
	}
	return cmd
}

// settingsChange is the body of a request that changes settings as flags say; null removes a setting.
func (b *backups) settingsChange(
	f *pflag.FlagSet, numbers map[string]int, recipients []string, bucket string,
) (map[string]any, error) {
	change := map[string]any{}
	for name, n := range numbers {
		switch {
		case n < 0:
			return nil, usageError{fmt.Errorf("--%s must be 0 or more", name)}
		case n == 0 && f.Changed(name):
			change[strings.ReplaceAll(name, "-", "_")] = nil
		case n > 0:
			change[strings.ReplaceAll(name, "-", "_")] = n
		}
	}
	switch {
	case len(recipients) == 1 && recipients[0] == noPlace:
		change["recipients"] = []string{}
	case len(recipients) > 0:
		change["recipients"] = recipients
	}

	switch bucket {
	case "":
	case noPlace:
		change["s3"] = nil
	default:
		at, err := b.bucket(bucket)
		if err != nil {
			return nil, err
		}
		change["s3"] = wire.NewBackupS3{
			Endpoint: at.Endpoint, Bucket: at.Bucket, Region: at.Region, Prefix: at.Prefix, AccessKey: at.AccessKey,
			SecretKey: at.SecretKey,
		}
	}
	return change, nil
}

// printBackupSettings prints settings as JSON, or in lines.
func printBackupSettings(e *env, raw json.RawMessage, asJSON bool) error {
	shown, err := decoded[wire.BackupSettingsShown](raw)
	if err != nil {
		return err
	}
	set := &shown.Settings
	if asJSON {
		return e.printJSON(set)
	}
	number := func(n *int, none string) string {
		if n == nil {
			return none
		}
		return fmt.Sprint(*n)
	}
	to := "the server's folder"
	if at := set.S3; at != nil {
		to = strings.TrimSuffix("s3://"+at.Bucket+"/"+at.Prefix, "/")
		if where := cmp.Or(at.Endpoint, at.Region); where != "" {
			to += " at " + where
		}
		to += ", with the access key " + at.AccessKey
	}
	return e.printTable([]string{"setting", "value"}, [][]string{
		{"every hours", number(set.EveryHours, "none by the clock")},
		{"keep last", number(set.KeepLast, "any number")},
		{"keep days", number(set.KeepDays, "any")},
		{"encrypted to", cmp.Or(strings.Join(set.Recipients, ", "), "nobody: in clear")},
		{"to", to},
	})
}
