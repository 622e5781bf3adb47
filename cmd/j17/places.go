package main

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func placesCommand(e *env) *cobra.Command {
	return group("places", "Where aggregates are: around a point, in an area, or whose areas have a point", placesNearbyCommand(e), placesWithinCommand(e), placesContainingCommand(e), placesVerifyCommand(e))
}

func placesNearbyCommand(e *env) *cobra.Command {
	var at string
	var radius float64
	return placesByCommand(e, question{
		name: "nearby", short: "Print the aggregates around a point, nearest first",
		long: "Print the aggregates of a type that are around a point, nearest first, with how many metres they are away.",
		example: `  j17 places nearby store --at 40.7,-74.0 --radius 5000
  j17 places nearby store --at 40.7,-74.0 --limit 10 --json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&at, "at", "", "the point, as `lat,lng` in degrees")
			cmd.Flags().Float64Var(&radius, "radius", 0, "how many `metres` away they may be; without it the nearest, however far")
		},
		where: func(cmd *cobra.Command, q url.Values) error {
			if cmd.Flags().Changed("radius") {
				q.Set("radius", strconv.FormatFloat(radius, 'f', -1, 64))
			}
			return point(at, q)
		},
	})
}

func placesContainingCommand(e *env) *cobra.Command {
	var at string
	return placesByCommand(e, question{
		name: "containing", short: "Print the aggregates whose areas contain a point",
		long:    "Print the aggregates of a type whose areas contain a point, in the order of their ids.",
		example: "  j17 places containing district --at 40.7,-74.0",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&at, "at", "", "the point, as `lat,lng` in degrees")
		},
		where: func(_ *cobra.Command, q url.Values) error { return point(at, q) },
	})
}

func placesWithinCommand(e *env) *cobra.Command {
	var box, polygon string
	return placesByCommand(e, question{
		name: "within", short: "Print the aggregates in an area",
		long: "Print the aggregates of a type that are in a box or in a polygon, in the order of their ids.",
		example: `  j17 places within store --box 40.6,-74.1,40.9,-73.8
  j17 places within store --polygon 40.6,-74.1,40.9,-74.0,40.7,-73.8 --json`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&box, "box", "", "the area between two parallels and two meridians, as `south,west,north,east`; west > east crosses the date line")
			cmd.Flags().StringVar(&polygon, "polygon", "", "the area between vertices, as `lat,lng,lat,lng,...`")
		},
		where: func(_ *cobra.Command, q url.Values) error {
			switch {
			case (box == "") == (polygon == ""):
				return usageError{errors.New("say in which area: give --box south,west,north,east or --polygon lat,lng,lat,lng,..., not both")}
			case box != "":
				q.Set("box", unspaced(box))
			default:
				q.Set("polygon", unspaced(polygon))
			}
			return nil
		},
	})
}

// point is where a point is that a question is about.
func point(at string, q url.Values) error {
	lat, lng, ok := strings.Cut(at, ",")
	if !ok {
		return usageError{errors.New("say where: give --at lat,lng, such as --at 40.7,-74.0")}
	}
	q.Set("lat", strings.TrimSpace(lat))
	q.Set("lng", strings.TrimSpace(lng))
	return nil
}

// unspaced returns numbers with commas between them without the spaces after the commas.
func unspaced(numbers string) string { return strings.ReplaceAll(numbers, " ", "") }

// question is one of the queries for places: flags declares the flags that say where, and where reads them.
type question struct {
	name, short, long, example string

	flags func(cmd *cobra.Command)
	where func(cmd *cobra.Command, q url.Values) error
}

// placesByCommand returns the command that asks a question.
func placesByCommand(e *env, o question) *cobra.Command {
	var limit int
	var noData, asJSON bool
	cmd := &cobra.Command{
		Use: o.name + " TYPE", Short: o.short, Args: exactly("TYPE"), Example: o.example,
		Long: o.long + ` They come page by page: as a table, or with
--json one object a line.

Exit code 6: there is no such type, or it has no such places.`,
	}
	r := remoteFlags(cmd)
	f := cmd.Flags()
	o.flags(cmd)
	f.BoolVar(&noData, "no-data", false, "leave out the states of the aggregates")
	f.IntVar(&limit, "limit", 100, "at most this `number` of rows; 0 for all")
	f.BoolVar(&asJSON, "json", false, "print one row a line")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{}
		if err := o.where(cmd, q); err != nil {
			return err
		}
		if noData {
			q.Set("data", "false")
		}
		return printPages(e, cmd, r, limit, asJSON, q, func(c *client.Client, q url.Values) (client.RowPage, error) {
			return c.Places(cmd.Context(), args[0], o.name, q)
		})
	}
	return cmd
}

func placesVerifyCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the places of aggregates with the events", Args: exactly(),
		Long: `Compare the places of all aggregates of an environment with their events, and all entries by which they are found with the places. Servers do the
same by themselves every few hours. A terminal shows the progress.

It needs an operator who may operate the instance (see j17 login).

Exit code 7: they differ; the first difference is named. All places of the environment are then no longer read, and are rebuilt in the background.
Exit code 6: the spec has no places.`,
		Example: "  j17 places verify --env staging",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Start the comparison.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "places")
		if err != nil {
			return err
		}
		raw, err := o.compare(cmd.Context(), path)
		if err != nil {
			return err
		}

		// What was found.
		found, err := decoded[wire.VerifiedPlaces](raw)
		if err != nil {
			return err
		}
		if asJSON {
			err = e.printAnswer(raw)
		} else if found.Verified {
			_, err = fmt.Fprintf(e.out, "The places are what the events say: %s, %s.\n", j17.Count(found.Aggregates, "aggregate"), j17.Count(found.Entries, "entry"))
		}
		if err != nil || found.Verified {
			return err
		}
		d := found.Difference
		differs := j17.Errorf(j17.CodeCorruption, "The places of %s are not what the events say. The first difference is that of %s: %s. They are no longer read, and are being rebuilt.",
			plain(d.Type), plain(d.ID), plain(d.What))
		if d.ID == "" {
			differs = j17.Errorf(j17.CodeCorruption, "The places of %s are not what the events say: %s. They are no longer read, and are being rebuilt.", plain(d.Type), plain(d.What))
		}
		if asJSON {
			return silent{differs}
		}
		return differs
	}
	return cmd
}
