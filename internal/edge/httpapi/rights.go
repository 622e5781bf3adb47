package httpapi

import (
	"j17"
	"j17/internal/plane/control"
)

// entitled determines what a route is about and reports whether the operator has the right to it. For a node, which has
// checked the operator's rights itself, it reports whether this server has the instance.
func (g *guard) entitled(c *call, r *route) error {
	// Who the rights of the route are checked for.
	switch r.access {
	case node:
		return g.placed(c, r.need)
	case operator:
	case reader:
		if c.principal.Kind != j17.Operator {
			return nil // its scope has been checked
		}
	case unstated, free, open, read, write:
		return nil
	}

	// The subject of the route. Operators who may not see it are not told that it exists.
	id := c.request.PathValue("id")
	switch r.need.in {
	case oneself:
		return nil
	case aServer:
		return g.needRight(c, "", r.need.right)
	case self:
		if id == c.principal.ID {
			return nil
		}
		return g.needRight(c, "", r.need.right)
	case instance:
		if r.sites == adminSite {
			id = "" // the host names the instance: the path names something in it
		}
		if err := g.named(c, id); err != nil {
			return err
		}
		return g.needRight(c, c.instance, r.need.right)
	case instanceOfServer:
		if err := g.needRight(c, id, control.RightView); err != nil {
			return err
		}
		return g.needRight(c, "", r.need.right)
	case instanceOfKey:
		key, ok := g.registry.Keys.ByID(id)
		if !ok || !g.may(c, key.Instance, control.RightView) {
			return j17.Errorf(j17.CodeNotFound, "There is no such API key. Ids of keys start with 'key_'; GET /api/instances/{id}/keys lists them.")
		}
		return g.needRight(c, key.Instance, r.need.right)
	case someInstance:
		op, _ := g.registry.Operators.ByID(c.principal.ID)
		for _, of := range append([]string{""}, op.Instances...) {
			if g.may(c, of, r.need.right) {
				return nil
			}
		}
		return j17.Errorf(j17.CodeForbidden, "This needs the right '%s', which you have for no instance. Ask a platform admin for it.", r.need.right)
	case nowhere:
	}

	return j17.Errorf(j17.CodeForbidden, "No operator may do this.")
}

// may reports whether the operator has a right in an instance, "" for the server.
func (g *guard) may(c *call, instance string, right control.Right) bool {
	return c.principal.Kind == j17.Operator && g.registry.Operators.May(c.principal.ID, instance, right)
}

// needRight returns an error unless the operator has a right in an instance, "" for the server. On the control host, an
// instance that they may not even see does not exist for them; on its own host they know that it does.
func (g *guard) needRight(c *call, instance string, right control.Right) error {
	if instance == "" {
		if g.may(c, "", right) {
			return nil
		}
		return j17.Errorf(j17.CodeForbidden, "Only platform admins may do this.")
	}
	if _, ok := g.registry.Instances.ByID(instance); c.control && (!ok || !g.may(c, instance, control.RightView)) {
		return errNoInstance()
	}
	if g.may(c, instance, right) {
		return nil
	}
	return j17.Errorf(j17.CodeForbidden, "This needs the right '%s' on the instance, which you do not have there. Ask a platform admin for it.", right)
}

func errNoInstance() error {
	return j17.Errorf(j17.CodeNotFound, "There is no instance with this id. Ids of instances start with 'ins_'; GET /api/instances lists them.")
}

// named sets the instance and, where it has one, the environment that the path names, unless the host has named both.
func (g *guard) named(c *call, id string) error {
	if in := c.request.PathValue("instance_"); in != "" {
		id = in
	}
	if id == "" {
		return nil
	}
	if _, ok := g.registry.Instances.ByID(id); !ok {
		return errNoInstance()
	}
	c.instance = id
	name := c.request.PathValue("env_")
	if name == "" {
		return nil
	}
	env, err := j17.ParseEnvironment(name)
	if err != nil {
		return j17.Errorf(j17.CodeNotFound, "There is no such environment. Environments are prod, staging and test.")
	}
	c.target(id, env)
	return nil
}

// placed sets the instance and environment that a path of the internal listener names, which have to be on this server.
func (g *guard) placed(c *call, n need) error {
	if n.in != instance {
		return nil
	}
	id := c.request.PathValue("instance_")
	i, ok := g.registry.Instances.ByID(id)
	if !ok {
		return j17.Errorf(j17.CodeNotFound, "This server does not know the instance, or not yet. Try again.")
	}
	if err := g.named(c, id); err != nil {
		return err
	}
	return g.onThisNode(c, i)
}
