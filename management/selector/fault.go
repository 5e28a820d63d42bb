// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"
)

// fault is the first fault of a malformed selector.
type fault struct {
	at      int // the byte at which it begins
	problem string
}

// character returns the position for people, from 1.
func (f fault) character(text string) int { return utf8.RuneCountInString(text[:f.at]) + 1 }

// token is a word or a symbol of a selector. An empty one is its end.
type token struct {
	at   int
	text string
}

const symbols = "=!(),<>"

func (t token) isWord() bool { return t.text != "" && !strings.Contains(symbols, t.text[:1]) }

// faultOf returns the first fault of a selector that the parser has refused. The parser does not
// return its position, so this follows the same grammar.
func faultOf(text string, refusal error) fault {
	r := &reader{tokens: tokensOf(text)}

	for {
		if f := r.condition(); f != nil {
			return *f
		}

		switch t := r.next(); t.text {
		case ",":
		case "":
			return fault{0, refusal.Error()}
		default:
			return fault{t.at, "a comma or the end belongs here, not " + t.name()}
		}
	}
}

// tokensOf returns the tokens of a selector, with its end.
func tokensOf(text string) []token {
	var tokens []token

	isSymbol := func(r rune) bool { return strings.ContainsRune(symbols, r) }
	ends := func(r rune) bool { return isSymbol(r) || isSpace(r) }

	for at := 0; at < len(text); {
		rest := text[at:]
		length := strings.IndexFunc(rest, ends)

		switch {
		case length < 0:
			length = len(rest)
		case length > 0:
		case isSpace(rune(rest[0])):
			at++
			continue
		case strings.HasPrefix(rest, "=="), strings.HasPrefix(rest, "!="):
			length = len("==")
		default:
			length = 1
		}

		tokens = append(tokens, token{at, rest[:length]})
		at += length
	}

	return append(tokens, token{at: len(text)})
}

func isSpace(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }

// name names the token in a message.
func (t token) name() string {
	if t.text == "" {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}

// reader reads tokens.
type reader struct{ tokens []token }

func (r *reader) peek() token { return r.tokens[0] }

// next returns the next token. The end remains.
func (r *reader) next() token {
	t := r.tokens[0]
	if t.text != "" {
		r.tokens = r.tokens[1:]
	}
	return t
}

// condition reads one condition, and returns its fault.
func (r *reader) condition() *fault {
	denied := r.peek().text == "!"
	if denied {
		r.next()
	}

	key := r.next()

	switch {
	case !key.isWord():
		return &fault{key.at, "a field or a label belongs here, not " + key.name()}
	case !accepted("!" + key.text):
		return &fault{key.at, key.name() + " is neither a field nor a valid label"}
	case denied, r.peek().text == "", r.peek().text == ",":
		return nil
	}

	return r.comparison()
}

// comparison reads the operator of a condition, and its values.
func (r *reader) comparison() *fault {
	switch op := r.next(); op.text {
	case "in", "notin":
		return r.values(op)
	case "=", "==", "!=", "<", ">":
		return r.value(op)
	default:
		return &fault{op.at, "one of =, !=, in and notin belongs here, not " + op.name()}
	}
}

// value reads the value after an operator. It may be empty.
func (r *reader) value(op token) *fault {
	value := r.peek()

	switch {
	case value.text == "", value.text == ",":
		if op.text == "<" || op.text == ">" {
			return &fault{value.at, "a number is missing after " + op.text}
		}
		return nil
	case !value.isWord():
		return &fault{value.at, "a value belongs here, not " + value.name()}
	}

	r.next()

	if (op.text == "<" || op.text == ">") && !accepted("x"+op.text+value.text) {
		return &fault{value.at, value.name() + " is not a number"}
	}

	return invalidValue(value)
}

// values reads the values in parentheses.
func (r *reader) values(op token) *fault {
	open := r.next()
	if open.text != "(" {
		return &fault{open.at, fmt.Sprintf("the values of %s belong here in parentheses, such as (r1,r2), not %s",
			op.text, open.name())}
	}

	for last := open; ; {
		t := r.next()

		switch {
		case t.text == ")":
			return nil
		case t.text == "":
			return &fault{open.at, "this parenthesis is not closed"}
		case t.text == ",":
		case !t.isWord():
			return &fault{t.at, "a value belongs here, not " + t.name()}
		case last.isWord():
			return &fault{t.at, "a comma or ) belongs here, not " + t.name()}
		default:
			if f := invalidValue(t); f != nil {
				return f
			}
		}

		last = t
	}
}

// invalidValue returns the fault of a value that no label has.
func invalidValue(value token) *fault {
	if notLabel.MatchString(value.text) || accepted("x="+value.text) {
		return nil
	}

	return &fault{value.at, value.name() + " is not a valid value: it has letters, digits, '.', '_' and '-', " +
		"with a letter or a digit at both ends"}
}

// accepted reports whether the parser accepts a condition.
func accepted(condition string) bool {
	_, err := labels.ParseToRequirements(notLabel.ReplaceAllString(condition, "x"))
	return err == nil
}
