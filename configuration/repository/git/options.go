// SPDX-License-Identifier: Apache-2.0

package git

import (
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/contiv/cluster/inventory"
)

// Options select the source, and the way to it. One of Branch, Tag and Commit may be set; none
// of them is the default branch of the repository.
type Options struct {
	URL    string
	Branch string
	Tag    string
	Commit string // 40 hexadecimal digits
	Folder string // with the playbooks, relative; empty: the whole tree

	KeyFile        string // private key for ssh
	KnownHostsFile string // host keys for ssh
	CredentialFile string // USER:PASSWORD or TOKEN for https; empty: none
	CAFile         string // for https; empty: those of the system

	// SignedBy are files of public keys, OpenPGP or ssh. Unless it is empty, a commit
	// needs a signature by one of them.
	SignedBy []string

	// Submodules fetches submodules from the server of the repository. Their commits need
	// signatures, too, and the limits hold for all together.
	Submodules bool

	// Requirements accepts files with requirements of roles and collections, which the
	// caller installs.
	Requirements bool

	Limits Limits
}

// Limits bound a fetch and a tree.
type Limits struct {
	Fetch int64 // bytes on the wire
	Size  int64 // bytes of the files of a tree, and of one object
	Files int   // files, folders and links of a tree
	Time  time.Duration
}

// The transports of a URL.
type transport string

const (
	viaHTTPS transport = "https"
	viaSSH   transport = "ssh"
	viaPath  transport = "path"
)

// scpLike matches USER@HOST:PATH, the short form of an ssh URL.
var scpLike = regexp.MustCompile(`^([A-Za-z0-9._-]+)@([A-Za-z0-9._-]+):([^:]+)$`)

// address is a parsed URL.
type address struct {
	via  transport
	url  string // of https
	user string // of ssh
	host string // HOST:PORT, of ssh
	path string // on the ssh server, or on this host
}

// CheckURL refuses a URL that is none of https://HOST/PATH, ssh://USER@HOST/PATH,
// USER@HOST:PATH and an absolute path, and one that contains a password.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// UsesSSH reports whether the URL is fetched over ssh.
func UsesSSH(text string) bool {
	a, err := parseURL(text)
	return err == nil && a.via == viaSSH
}

// UsesHTTPS reports whether the URL is fetched over https.
func UsesHTTPS(text string) bool {
	a, err := parseURL(text)
	return err == nil && a.via == viaHTTPS
}

const forms = "write https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH or an absolute path"

func parseURL(text string) (address, error) {
	if text == "" || len(text) > 2000 || !printable(text) {
		return address{}, inventory.Errorf(inventory.KindInvalid, "the URL %q is not one of a repository",
			inventory.Shorten(text, 100)).Do(forms)
	}

	if strings.HasPrefix(text, "/") {
		if filepath.Clean(text) != text {
			return address{}, inventory.Errorf(inventory.KindInvalid, "the path %s is not clean", text).
				Do("write %s", filepath.Clean(text))
		}

		return address{via: viaPath, path: text}, nil
	}

	if m := scpLike.FindStringSubmatch(text); m != nil && !strings.HasPrefix(m[3], "-") {
		return address{via: viaSSH, user: m[1], host: net.JoinHostPort(m[2], "22"), path: m[3]}, nil
	}

	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") == "" {
		// The text may contain a password, so the error does not.
		return address{}, inventory.Errorf(inventory.KindInvalid, "the URL is not one of a repository").Do(forms)
	}

	if _, secret := u.User.Password(); secret || u.Scheme == "https" && u.User != nil {
		return address{}, inventory.Errorf(inventory.KindInvalid, "the URL contains credentials, which lists and logs "+
			"would show").Do("put them into a file that only root can read, and name it in credential_file")
	}

	switch u.Scheme {
	case "https":
		return address{via: viaHTTPS, url: text}, nil
	case "ssh":
		user, port := u.User.Username(), u.Port()
		if user == "" {
			user = "git"
		}

		if port == "" {
			port = "22"
		}

		return address{via: viaSSH, user: user, host: net.JoinHostPort(u.Hostname(), port), path: u.Path}, nil
	}

	return address{}, inventory.Errorf(inventory.KindInvalid, "the URL begins with %s://, which is not supported",
		u.Scheme).Do(forms)
}

// printable reports whether a text has visible characters only.
func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// IsCommit reports whether a text is the full hash of a commit.
func IsCommit(text string) bool { return commitPattern.MatchString(text) }

// refPattern accepts the names of branches and tags that need no quotes. It is stricter
// than git.
var refPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._+-]*(/[A-Za-z0-9_][A-Za-z0-9._+-]*)*$`)

// CheckRef refuses a name that is none of a branch or a tag.
func CheckRef(name string) error {
	if len(name) > 200 || !refPattern.MatchString(name) || strings.Contains(name, "..") ||
		strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, ".") {
		return inventory.Errorf(inventory.KindInvalid, "%q is not the name of a branch or a tag",
			inventory.Shorten(name, 100)).Do("write the name alone, such as main or release/1.2")
	}

	return nil
}

// CheckFolder refuses a folder that is no plain path within a repository.
func CheckFolder(folder string) error {
	if folder == "" {
		return nil
	}

	if err := checkPath(folder); err != nil || filepath.Clean(folder) != folder {
		return inventory.Errorf(inventory.KindInvalid, "%q is not a folder within a repository",
			inventory.Shorten(folder, 100)).Do("write a relative path such as deploy/playbooks")
	}

	return nil
}

// reference describes the selected branch, tag or commit.
func (o Options) reference() string {
	switch {
	case o.Commit != "":
		return "the commit " + o.Commit
	case o.Tag != "":
		return "the tag " + o.Tag
	case o.Branch != "":
		return "the branch " + o.Branch
	}

	return "the default branch"
}
