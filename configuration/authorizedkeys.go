// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// MaxAuthorizedKeys bounds an authorized_keys file that is edited, in bytes.
const MaxAuthorizedKeys = 1 << 20

// plainOptions restrict a key that no other line shows the options of: the manager uses
// neither, and needs a terminal and forwarding for become and for jump hosts.
const plainOptions = "no-agent-forwarding,no-X11-forwarding"

// AuthorizeKey returns an authorized_keys file that accepts the key: beside the old key
// and with its options if it accepts that one, else at its end. A file that accepts the
// key already, and every other line, stays as it is. Keys are in the form of
// Host.HostKeys. Errors are of kind invalid, for a malformed key or comment, or too
// large.
func AuthorizeKey(file []byte, key, old, comment string) ([]byte, error) {
	if parsed, err := ParseHostKey(key); err != nil || parsed != key {
		return nil, errHostKey(key)
	}

	if strings.ContainsFunc(comment, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, inventory.Errorf(inventory.KindInvalid, "the comment %q of an ssh key is not plain text", comment)
	}

	lines := splitLines(file)
	if slices.ContainsFunc(lines, isLineOf(key)) {
		return file, nil
	}

	added := plainOptions + " " + key
	at := len(lines)

	if i := slices.IndexFunc(lines, isLineOf(old)); i >= 0 {
		options, _ := parseAuthorized(lines[i])
		if at = i + 1; len(options) > 0 {
			added = string(options) + " " + key
		}
	}

	if comment != "" {
		added += " " + comment
	}

	// The last line may lack its end.
	if at > 0 && !bytes.HasSuffix(lines[at-1], []byte("\n")) {
		lines[at-1] = append(slices.Clone(lines[at-1]), '\n')
	}

	edited := bytes.Join(slices.Insert(lines, at, []byte(added+"\n")), nil)
	if err := CheckAuthorizedKeys(edited); err != nil {
		return nil, err
	}
	return edited, nil
}

// RevokeKey returns an authorized_keys file without the lines of the key. Every other
// line stays as it is.
func RevokeKey(file []byte, key string) []byte {
	return bytes.Join(slices.DeleteFunc(splitLines(file), isLineOf(key)), nil)
}

// Authorizes reports whether a line of an authorized_keys file accepts the key.
func Authorizes(file []byte, key string) bool {
	return slices.ContainsFunc(splitLines(file), isLineOf(key))
}

// CheckAuthorizedKeys refuses an authorized_keys file that is too large to be edited.
// Its error is of kind too large.
func CheckAuthorizedKeys(file []byte) error {
	if len(file) <= MaxAuthorizedKeys {
		return nil
	}
	return inventory.Errorf(inventory.KindTooLarge, "its authorized_keys is larger than %d bytes", MaxAuthorizedKeys)
}

// splitLines returns the lines with their ends.
func splitLines(file []byte) [][]byte {
	return slices.DeleteFunc(bytes.SplitAfter(file, []byte("\n")), func(line []byte) bool { return len(line) == 0 })
}

// isLineOf returns a function that reports whether a line accepts the key. The line of a
// CA with that key does not.
func isLineOf(key string) func(line []byte) bool {
	kind, text, _ := strings.Cut(key, " ")
	want := decodeBlob([]byte(text))

	return func(line []byte) bool {
		options, words := parseAuthorized(line)

		return len(want) > 0 && len(words) >= 2 && string(words[0]) == kind &&
			bytes.Equal(decodeBlob(words[1]), want) && !isAuthority(options)
	}
}

// parseAuthorized returns the options of a line as they are written, and the words after
// them: type, key and comment. A line without a key has no words.
func parseAuthorized(line []byte) (options []byte, words [][]byte) {
	line = bytes.TrimLeft(bytes.TrimRight(line, "\r\n"), " \t")
	if len(line) == 0 || line[0] == '#' {
		return nil, nil
	}

	// As sshd does: a line begins with options unless it begins with a key.
	if words = cutWords(line); isKey(words) {
		return nil, words
	}

	end := endOfOptions(line)
	if words = cutWords(line[end:]); isKey(words) {
		return line[:end], words
	}

	return nil, nil
}

// cutWords returns the first two words, and the rest as the third one.
func cutWords(line []byte) [][]byte {
	var words [][]byte
	for len(words) < 2 {
		line = bytes.TrimLeft(line, " \t")
		if len(line) == 0 {
			return words
		}
		end := bytes.IndexAny(line, " \t")
		if end < 0 {
			end = len(line)
		}
		words, line = append(words, line[:end]), line[end:]
	}

	return append(words, line)
}

// isKey reports whether words begin with a type of key and a key of that type.
func isKey(words [][]byte) bool {
	// Every key begins with the length of its type, which is small.
	if len(words) < 2 || !bytes.HasPrefix(words[1], []byte("AAAA")) {
		return false
	}

	_, err := ParseHostKey(string(words[0]) + " " + fillBase64(words[1]))
	return err == nil
}

// endOfOptions returns the length of the options at the begin of a line: up to white
// space outside quotes.
func endOfOptions(line []byte) int {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line) && line[i+1] == '"':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t'):
			return i
		}
	}

	return len(line)
}

// isAuthority reports whether the options have cert-authority.
func isAuthority(options []byte) bool {
	quoted, begin := false, 0
	is := func(end int) bool { return bytes.EqualFold(options[begin:end], []byte("cert-authority")) }

	for i := 0; i < len(options); i++ {
		switch c := options[i]; {
		case c == '\\' && i+1 < len(options) && options[i+1] == '"':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && c == ',':
			if is(i) {
				return true
			}

			begin = i + 1
		}
	}

	return is(len(options))
}

// fillBase64 returns base64 with its padding, which sshd does not require.
func fillBase64(text []byte) string {
	bare := strings.TrimRight(string(text), "=")
	return bare + strings.Repeat("=", (4-len(bare)%4)%4)
}

// decodeBlob returns the key of a base64 text, or nil.
func decodeBlob(text []byte) []byte {
	blob, err := base64.StdEncoding.DecodeString(fillBase64(text))
	if err != nil {
		return nil
	}
	return blob
}
