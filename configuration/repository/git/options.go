// SPDX-License-Identifier: Apache-2.0

package git

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	gittransport "github.com/go-git/go-git/v5/plumbing/transport"

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

	Limits Limits
}

// Limits bound a fetch and a tree.
type Limits struct {
	Fetch int64 // bytes on the wire
	Size  int64 // bytes of the files of a tree, and of one object
	Files int   // files, folders and links of a tree
	Time  time.Duration
}

// CheckURL refuses a URL that is none of https://HOST/PATH, ssh://USER@HOST/PATH,
// USER@HOST:PATH and an absolute path, and one that contains a password.
func CheckURL(text string) error {
	_, err := parseURL(text)
	return err
}

// UsesSSH reports whether the URL is fetched over ssh.
func UsesSSH(text string) bool {
	e, err := parseURL(text)
	return err == nil && e.Protocol == viaSSH
}

// UsesHTTPS reports whether the URL is fetched over https.
func UsesHTTPS(text string) bool {
	e, err := parseURL(text)
	return err == nil && e.Protocol == viaHTTPS
}

// The protocols of an endpoint.
const (
	viaHTTPS = "https"
	viaSSH   = "ssh"
	viaPath  = "file" // a path on this host
)

const forms = "write https://HOST/PATH, ssh://USER@HOST/PATH, USER@HOST:PATH or an absolute path"

// parseURL returns the place of a repository. User and port of a server are set, also where
// the URL leaves them out.
func parseURL(text string) (*gittransport.Endpoint, error) {
	// The text may contain a password, so the error does not.
	bad := inventory.Errorf(inventory.KindInvalid, "the URL is not one of a repository").Do(forms)

	if len(text) > 2000 || !printable(text) {
		return nil, bad
	}

	if strings.HasPrefix(text, "/") {
		if filepath.Clean(text) != text {
			return nil, inventory.Errorf(inventory.KindInvalid, "the path %s is not clean", text).
				Do("write %s", filepath.Clean(text))
		}

		return &gittransport.Endpoint{Protocol: viaPath, Path: text}, nil
	}

	e, err := gittransport.NewEndpoint(text)
	if err != nil {
		return nil, bad
	}

	isURL := strings.Contains(text, "://")

	switch {
	case e.Host == "", strings.Trim(e.Path, "/") == "", strings.ContainsAny(e.Path, "?#"):
		return nil, bad
	case e.Password != "", strings.Contains(e.User, ":"), e.Protocol == viaHTTPS && e.User != "":
		return nil, inventory.Errorf(inventory.KindInvalid, "the URL contains credentials, which lists and logs "+
			"would show").Do("put them into a file that only root can read, and name it in credential_file")
	case e.Protocol == viaHTTPS:
		e.Port = cmp.Or(e.Port, 443)
	case e.Protocol == viaSSH && !isURL && (e.User == "" || strings.HasPrefix(e.Path, "-")):
		return nil, bad
	case e.Protocol == viaSSH:
		e.User, e.Port = cmp.Or(e.User, "git"), cmp.Or(e.Port, 22)
	default:
		return nil, inventory.Errorf(inventory.KindInvalid, "the URL begins with %s://, which is not supported",
			e.Protocol).Do(forms)
	}

	return e, nil
}

// printable reports whether a text has visible characters only.
func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// IsCommit reports whether a text is the full hash of a commit.
func IsCommit(text string) bool { return commitPattern.MatchString(text) }

// CheckRef refuses a name that is none of a branch or a tag.
func CheckRef(name string) error {
	if len(name) > 200 || !printable(name) || plumbing.NewBranchReferenceName(name).Validate() != nil {
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

// Reference describes the selected branch, tag or commit, e.g. "branch main".
func (o Options) Reference() string {
	switch {
	case o.Commit != "":
		return "commit " + o.Commit
	case o.Tag != "":
		return "tag " + o.Tag
	case o.Branch != "":
		return "branch " + o.Branch
	}

	return "default branch"
}
