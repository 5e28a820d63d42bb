// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"path"
	"strings"

	"github.com/contiv/cluster/configuration"
)

// The scripts that read and replace the authorized_keys file of an account.
var (
	//go:embed locate_keys.sh
	locateKeys string
	//go:embed read_keys.sh
	readKeys string
	//go:embed write_keys.sh
	writeKeys string
)

// keysMark begins the line before the answer of a script: the shell of the account may
// print lines of its own.
const keysMark = "clusterm-authorized-keys "

// keysFile is the authorized_keys file of an account on a host.
type keysFile struct {
	path    string
	central bool // outside the home of the account: root's
	exists  bool
	content []byte
}

// EditAuthorizedKeys replaces the authorized_keys file of the account that h connects to
// by the result of edit; a missing file has no content. The file keeps its owner and
// its mode. One outside the home of the account is edited as root, if the connection
// becomes root. Nothing is written if the content stays the same, and nothing if it
// changes meanwhile: then the error says so. EditAuthorizedKeys blocks as Script does.
func (p *Prober) EditAuthorizedKeys(
	ctx context.Context, h configuration.Host, edit func([]byte) ([]byte, error),
) error {
	file, err := p.readAuthorizedKeys(ctx, h)
	if err != nil {
		return err
	}
	edited, err := edit(file.content)
	if err != nil || bytes.Equal(edited, file.content) {
		return err
	}

	was := "absent"
	if file.exists {
		was = digest(file.content)
	}

	// sshd reads a central file as the account.
	mode := "600"
	if file.central {
		mode = "644"
	}
	_, err = p.command(ctx, h, rooted(h, file.central, writeKeys, file.path, was, digest(edited), mode), edited)

	return err
}

// readAuthorizedKeys finds and reads the file.
func (p *Prober) readAuthorizedKeys(ctx context.Context, h configuration.Host) (keysFile, error) {
	sudo := ""
	if becomes(h) {
		sudo = "sudo -n"
	}
	answer, err := p.command(ctx, h, shell(locateKeys, sudo), nil)
	if err != nil {
		return keysFile{}, err
	}
	file, err := parseKeys(answer)
	if err != nil || !file.central {
		return file, err
	}
	if answer, err = p.command(ctx, h, rooted(h, true, readKeys, file.path), nil); err != nil {
		return keysFile{}, err
	}

	found, err := parseKeys(answer)
	if err == nil && found.path != file.path {
		err = errors.New("the host has answered with another file than asked for")
	}
	found.central = true

	return found, err
}

// parseKeys parses the answer of locateKeys or readKeys.
func parseKeys(answer []byte) (keysFile, error) {
	var file keysFile

	malformed := errors.New("the host has answered with something else than its authorized_keys")

	_, rest, found := bytes.Cut(append([]byte("\n"), answer...), []byte("\n"+keysMark))
	header, content, complete := bytes.Cut(rest, []byte("\n"))

	where, name, named := strings.Cut(string(header), " ")
	if !found || !complete || !named {
		return file, malformed
	}

	// The path returns to the host as a word of its shell.
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	if !path.IsAbs(name) || len(name) > 1024 || strings.ContainsFunc(name, isControl) {
		return file, malformed
	}

	file.path = name

	switch where {
	case "central":
		file.central = true
		return file, nil
	case "absent":
		return file, nil
	case "present":
		file.exists, file.content = true, content
	default:
		return file, malformed
	}

	return file, configuration.CheckAuthorizedKeys(content)
}

// shell returns a command line that runs a script of sh with arguments.
func shell(script string, args ...string) string {
	words := []string{"sh", "-c", quote(script), "clusterm"}
	for _, arg := range args {
		words = append(words, quote(arg))
	}

	return strings.Join(words, " ")
}

// rooted returns the command line of a script, as root for a central file if the
// connection becomes root.
func rooted(h configuration.Host, central bool, script string, args ...string) string {
	if central && becomes(h) {
		return "sudo -n " + shell(script, args...)
	}
	return shell(script, args...)
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
