package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
	"j17/internal/lang/diag"
)

func operatorsCommand(e *env) *cobra.Command {
	return group("operators", "The people who run a server",
		operatorsListCommand(e), operatorsCreateCommand(e), operatorsRoleCommand(e), operatorsGrantCommand(e, true),
		operatorsGrantCommand(e, false),
		operatorsPasswordCommand(e), operatorsRevokeTokensCommand(e), operatorsDeleteCommand(e))
}

func operatorsListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List the operators of a server", Example: "  j17 operators list", Args: noArgs,
	}

	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		rows, err := o.rows(cmd.Context(), []string{"operators"}, nil, "operators", 0)
		if err != nil {
			return err
		}
		return printRows(e, rows, asJSON, []string{"email", "id", "role", "instances", "created"},
			func(op wire.Operator) []string {
				return []string{op.Email, op.ID, op.Role, strings.Join(op.Instances, ", "), when(op.CreatedAt)}
			})
	}
	return cmd
}

// operator finds an operator by id or e-mail address.
func (o *operating) operator(ctx context.Context, want string) (wire.Operator, error) {
	raw, err := o.rows(ctx, []string{"operators"}, nil, "operators", 0)
	if err != nil {
		return wire.Operator{}, err
	}
	all, err := decodeRows[wire.Operator](raw)
	if err != nil {
		return wire.Operator{}, err
	}
	for _, op := range all {
		if op.ID == want || strings.EqualFold(op.Email, want) {
			return op, nil
		}
	}
	return wire.Operator{}, notFound("There is no operator %q. 'j17 operators list' shows them.", want)
}

func operatorsCreateCommand(e *env) *cobra.Command {
	var role string
	var instances []string
	var passwordStdin, asJSON bool
	cmd := &cobra.Command{
		Use: "create EMAIL", Short: "Create an operator", Args: exactly("EMAIL"),
		Long: `Create an operator. The password, 12 characters or more, is asked for on the terminal or read from standard input; they should
change it.`,
		Example: "  j17 operators create ada@example.com --role instance_admin --grant shop",
	}

	r := serverFlags(cmd)
	cmd.Flags().StringVar(&role, "role", "", "platform_admin, instance_admin, auditor or privacy_officer; required")
	cmd.Flags().StringArrayVar(&instances, "grant", nil, "an `instance` that they may work with; can be given several times")
	cmd.Flags().BoolVar(&passwordStdin, "password-stdin", false, "read the password from standard input")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Mistakes in the command line are reported before a password is asked for.
		if role == "" {
			return usageError{errors.New("--role is missing: platform_admin, instance_admin, auditor or privacy_officer")}
		}
		if err := checkRole("--role", role); err != nil {
			return err
		}

		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		ids := []string{}
		for _, name := range instances {
			i, err := o.instance(cmd.Context(), name)
			if err != nil {
				return err
			}
			ids = append(ids, i.ID)
		}

		password, err := newPassword(cmd.Context(), e, args[0], passwordStdin)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		body := map[string]any{"email": args[0], "password": password, "role": role, "instances": ids}
		if err := o.call(cmd.Context(), http.MethodPost, []string{"operators"}, nil, body, &raw); err != nil {
			return err
		}
		return printOperator(e, raw, asJSON)
	}
	return cmd
}

// operatorRoles are those that an operator can have.
func operatorRoles() []string {
	return []string{"platform_admin", "instance_admin", "auditor", "privacy_officer"}
}

// checkRole refuses an unknown role; what is the flag or the argument that it comes from.
func checkRole(what, role string) error {
	roles := operatorRoles()
	if slices.Contains(roles, role) {
		return nil
	}
	hint := "it takes " + strings.Join(roles, ", ")
	if near := diag.Nearest(role, roles); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return usageError{fmt.Errorf("%s cannot be %q: %s", what, role, hint)}
}

// newPassword asks for a password for somebody.
func newPassword(ctx context.Context, e *env, whose string, passwordStdin bool) (string, error) {
	if passwordStdin {
		raw, err := e.readAll("-", 1<<20, "It should hold nothing but a password.")
		return strings.TrimRight(string(raw), "\r\n"), err
	}
	in, ok := e.in.(*os.File)
	if !ok || !terminal(e.in) {
		return "", usageError{errors.New("there is no terminal to ask for the password on: pass --password-stdin")}
	}
	e.note("New password of %s: ", plain(whose))
	first, err := readPassword(ctx, in)
	if err != nil {
		return "", err
	}
	e.note("\nOnce more: ")
	again, err := readPassword(ctx, in)
	e.note("\n")
	if err == nil && first != again {
		err = errors.New("these were two different passwords; nothing was done")
	}
	return first, err
}

func printOperator(e *env, raw json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.printAnswer(raw)
	}
	var op wire.Operator
	if err := json.Unmarshal(raw, &op); err != nil {
		return err
	}
	return e.printTable([]string{"email", op.Email}, [][]string{
		{"id", op.ID}, {"role", op.Role}, {"instances", strings.Join(op.Instances, ", ")},
	})
}

// operatorChangeCommand is a command that changes one operator; request makes the request for the operator that it has
// found. done is the sentence that is said, after the e-mail address, where the answer does not have the operator.
func operatorChangeCommand(
	e *env, cmd *cobra.Command, asJSON *bool, done string,
	request func(o *operating, op wire.Operator, args []string) (method string, path []string, body any, err error),
) *cobra.Command {
	r := serverFlags(cmd)
	jsonFlag(cmd, asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		op, err := o.operator(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		method, path, body, err := request(o, op, args)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(
			cmd.Context(), method, append([]string{"operators", op.ID}, path...), nil, body, &raw,
		); err != nil {
			return err
		}
		if method == http.MethodPost || len(path) == 0 && method == http.MethodDelete { // answers without the operator
			if *asJSON {
				return e.printAnswer(raw)
			}
			_, err = fmt.Fprintf(e.out, "%s %s.\n", plain(op.Email), done)
			return err
		}
		return printOperator(e, raw, *asJSON)
	}
	return cmd
}

func operatorsRoleCommand(e *env) *cobra.Command {
	var asJSON bool
	return operatorChangeCommand(e, &cobra.Command{
		Use: "set-role EMAIL|ID ROLE", Short: "Change the role of an operator",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := exactly("EMAIL|ID", "ROLE")(cmd, args); err != nil {
				return err
			}
			return checkRole("ROLE", args[1])
		},
		Example: "  j17 operators set-role ada@example.com auditor",
	}, &asJSON, "", func(_ *operating, _ wire.Operator, args []string) (string, []string, any, error) {
		return http.MethodPatch, nil, map[string]string{"role": args[1]}, nil
	})
}

func operatorsGrantCommand(e *env, give bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "grant EMAIL|ID INSTANCE", Short: "Grant an operator access to an instance", Args: exactly("EMAIL|ID", "INSTANCE"),
		Example: "  j17 operators grant ada@example.com shop",
	}
	method := http.MethodPut
	if !give {
		cmd.Use, cmd.Short, cmd.Example = "withdraw EMAIL|ID INSTANCE", "Take an instance away from an operator", "  j17 operators withdraw ada@example.com shop"
		method = http.MethodDelete
	}
	return operatorChangeCommand(e, cmd, &asJSON, "",
		func(o *operating, _ wire.Operator, args []string) (string, []string, any, error) {
			i, err := o.instance(cmd.Context(), args[1])
			return method, []string{"grants", i.ID}, nil, err
		})
}

func operatorsPasswordCommand(e *env) *cobra.Command {
	var asJSON, passwordStdin bool
	cmd := &cobra.Command{
		Use: "set-password EMAIL|ID", Short: "Set the password of an operator, who is logged out everywhere", Args: exactly("EMAIL|ID"),
		Example: "  j17 operators set-password ada@example.com",
	}
	cmd.Flags().BoolVar(&passwordStdin, "password-stdin", false, "read the password from standard input")
	return operatorChangeCommand(e, cmd, &asJSON, "has another password and is logged out everywhere", func(_ *operating, op wire.Operator, _ []string) (string, []string, any, error) {
		password, err := newPassword(cmd.Context(), e, op.Email, passwordStdin)
		return http.MethodPost, []string{"password"}, map[string]string{"password": password}, err
	})
}

func operatorsRevokeTokensCommand(e *env) *cobra.Command {
	var asJSON bool
	return operatorChangeCommand(e, &cobra.Command{
		Use: "revoke-tokens EMAIL|ID", Short: "Log an operator out everywhere", Args: exactly("EMAIL|ID"),
		Example: "  j17 operators revoke-tokens ada@example.com",
	}, &asJSON, "is logged out everywhere", func(*operating, wire.Operator, []string) (string, []string, any, error) {
		return http.MethodPost, []string{"revoke_tokens"}, nil, nil
	})
}

func operatorsDeleteCommand(e *env) *cobra.Command {
	var asJSON, yes bool
	cmd := &cobra.Command{
		Use: "delete EMAIL|ID", Short: "Remove an operator, who is logged out everywhere", Args: exactly("EMAIL|ID"),
		Example: "  j17 operators delete ada@example.com",
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return operatorChangeCommand(e, cmd, &asJSON, "is no longer an operator",
		func(_ *operating, op wire.Operator, _ []string) (string, []string, any, error) {
			return http.MethodDelete, nil, nil,
				e.confirm(cmd.Context(), yes, "Remove the operator "+plain(op.Email)+"?")
		})
}
