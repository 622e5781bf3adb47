package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"j17/internal/edge/client"
)

// reader reads an environment: with an API key, or without one with the login of an operator.
type reader struct {
	*client.Client
	// operator is the connection of an operator, nil where an API key is used.
	operator *operating
	env      *env
}

// reader returns what a command reads an environment through, whose flags are those of remoteFlags.
func (e *env) reader(cmd *cobra.Command, r *remote) (*reader, error) {
	s, err := e.connection(r)
	if err != nil {
		return nil, err
	}
	t, err := s.target()
	switch _, none := errors.AsType[noKey](err); {
	case err == nil:
		c, err := e.clientOf(s, t)
		return &reader{Client: c, env: e}, err
	case s.key.value == "" && s.token.value != "":
		o, err := operate(e, cmd, r)
		if err != nil {
			return nil, err
		}
		path, err := o.opsPath(cmd.Context())
		if err != nil {
			return nil, err
		}
		return &reader{o.ForOperator(append([]string{"api"}, path...)), o, e}, nil
	case none:
		return nil, fmt.Errorf("%w. The login of an operator who may read will do as well: 'j17 login'", err)
	default:
		return nil, err
	}
}

// explained adds to an error of a read what to do about it.
func (r *reader) explained(ctx context.Context, err error) error {
	if r.operator != nil {
		return r.operator.explained(ctx, err)
	}
	if err == nil {
		return nil
	}
	return interrupted(ctx, inCommands(r.env, err))
}
