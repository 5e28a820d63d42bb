// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Connection holds the ssh settings of a host. A field with its zero value is
// not set: the layer below applies, and below all layers the defaults of ssh
// and Ansible (the account clusterm runs as, port 22, no become).
type Connection struct {
	User    string `json:"user,omitempty" yaml:"user,omitempty"`
	KeyFile string `json:"key_file,omitempty" yaml:"key_file,omitempty"` // absolute path on the manager
	// FormerKeyFile is offered after KeyFile while a rotation of the key runs. Operators
	// cannot set it.
	FormerKeyFile string `json:"former_key_file,omitempty" yaml:"-"`

	Port       int    `json:"port,omitempty" yaml:"port,omitempty"`
	Become     *bool  `json:"become,omitempty" yaml:"become,omitempty"`
	BecomeUser string `json:"become_user,omitempty" yaml:"become_user,omitempty"`
	Jump       string `json:"jump,omitempty" yaml:"jump,omitempty"`     // [user@]host[:port]
	Python     string `json:"python,omitempty" yaml:"python,omitempty"` // absolute path on the host, or auto
}

// The patterns are strict, because the values become arguments and settings of
// ssh: no white space, quotes, braces or percent signs, and no leading dash.
var (
	userName = lazy(`^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}$`)
	filePath = lazy(`^/[A-Za-z0-9._/@+=,-]{1,255}$`)
)

// Check refuses values that are not safe as arguments of ssh. Its error is of
// kind invalid and names every such field.
func (c Connection) Check() error {
	var errs []error

	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.User != "" && !userName().MatchString(c.User) {
		add("connection: user %q is not an account name", c.User)
	}

	if c.BecomeUser != "" && !userName().MatchString(c.BecomeUser) {
		add("connection: become_user %q is not an account name", c.BecomeUser)
	}

	if c.KeyFile != "" && !filePath().MatchString(c.KeyFile) {
		add("connection: key_file %q is not an absolute path of letters, digits and ._/@+=,-", c.KeyFile)
	}

	if c.FormerKeyFile != "" && !filePath().MatchString(c.FormerKeyFile) {
		add(
			"connection: the former key_file %q is not an absolute path of letters, digits and ._/@+=,-",
			c.FormerKeyFile,
		)
	}

	if c.Port < 0 || c.Port > 65535 {
		add("connection: port %d is not between 1 and 65535", c.Port)
	}

	if c.Jump != "" {
		if _, err := ParseJump(c.Jump); err != nil {
			errs = append(errs, err)
		}
	}

	// Ansible looks for the interpreter itself in the auto modes.
	isAuto := c.Python == "auto" || c.Python == "auto_silent"
	if c.Python != "" && !isAuto && !filePath().MatchString(c.Python) {
		add("connection: python %q is neither an absolute path of letters, digits and ._/@+=,- nor auto", c.Python)
	}

	return invalid(errs)
}

// Over merges c and base: a field set in c overrides the one in base.
func (c Connection) Over(base Connection) Connection {
	// A pointer, so that false in c overrides true in base.
	become := c.Become
	if become == nil {
		become = base.Become
	}

	// The former key belongs to its key.
	former := c.FormerKeyFile
	if c.KeyFile == "" {
		former = base.FormerKeyFile
	}

	return Connection{
		FormerKeyFile: former,

		User:       cmp.Or(c.User, base.User),
		KeyFile:    cmp.Or(c.KeyFile, base.KeyFile),
		Port:       cmp.Or(c.Port, base.Port),
		Become:     become,
		BecomeUser: cmp.Or(c.BecomeUser, base.BecomeUser),
		Jump:       cmp.Or(c.Jump, base.Jump),
		Python:     cmp.Or(c.Python, base.Python),
	}
}

// Jump is a jump host of ssh.
type Jump struct {
	User string // empty: the account clusterm runs as
	Host string // address or host name
	Port int    // 0: 22
}

// ParseJump parses [user@]host[:port]. An IPv6 address with a port is in
// brackets. Errors are of kind invalid.
func ParseJump(s string) (Jump, error) {
	invalid := func(reason string) (Jump, error) {
		return Jump{}, inventory.Errorf(inventory.KindInvalid, "jump %q: %s", s, reason).Do("write [user@]host[:port]")
	}

	var j Jump

	// A user name may contain an @ as well.
	rest := s
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		j.User, rest = rest[:at], rest[at+1:]
		if !userName().MatchString(j.User) {
			return invalid("the user is not an account name")
		}
	}

	j.Host = rest
	if host, port, ok := cutPort(rest); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return invalid("the port is not between 1 and 65535")
		}
		j.Host, j.Port = host, int(n)
	} else if strings.HasPrefix(rest, "[") && strings.HasSuffix(rest, "]") {
		j.Host = rest[1 : len(rest)-1]
	}

	if err := inventory.CheckAddr(j.Host); err != nil {
		return invalid(err.Error())
	}

	return j, nil
}

// cutPort splits host:port. ok is false if s has no port.
func cutPort(s string) (host, port string, ok bool) {
	if strings.HasPrefix(s, "[") {
		end := strings.Index(s, "]:")
		if end < 0 {
			return "", "", false
		}
		return s[1:end], s[end+2:], true
	}

	if strings.Count(s, ":") != 1 {
		return "", "", false // none, or a bare IPv6 address
	}

	return strings.Cut(s, ":")
}

// String returns j in the syntax of ssh's option ProxyJump.
func (j Jump) String() string {
	s := j.Host
	if strings.Contains(s, ":") {
		s = "[" + s + "]"
	}
	if j.User != "" {
		s = j.User + "@" + s
	}

	if j.Port != 0 {
		s += ":" + strconv.Itoa(j.Port)
	}

	return s
}
