// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory"
)

// addresses returns the addresses and the ranges of the arguments and of --file,
// each once.
func (c *call) addresses(ctx context.Context) (addrs, ranges []string, err error) {
	words := slices.Clone(c.args)

	if c.IsSet("file") {
		fromFile, err := c.addressFile(ctx, c.String("file"))
		if err != nil {
			return nil, nil, err
		}
		words = append(words, fromFile...)
	}

	for _, word := range words {
		if inventory.IsRange(word) {
			ranges = append(ranges, word)
			continue
		}

		// Two spellings of one address are one address.
		if ip, err := netip.ParseAddr(word); err == nil {
			word = ip.String()
		}

		if !slices.Contains(addrs, word) {
			addrs = append(addrs, word)
		}
	}

	if len(words) == 0 {
		return nil, nil, exit.Usagef("%s needs at least one ADDR, or --file", short(c.FullName())).
			Try("see: %s --help", c.FullName())
	}

	return addrs, ranges, nil
}

// addressFile reads a file of addresses. It refuses a line that is neither an
// address nor a range, with its number.
func (c *call) addressFile(ctx context.Context, name string) ([]string, error) {
	if name == "-" && slices.Contains(c.StringSlice("extra-vars"), "@-") {
		return nil, exit.Usagef("--file - and -e @- both read stdin").Try("put one of them into a file")
	}

	content, source, err := c.readInput(ctx, name, "the addresses", "give --file FILE, or --file - for stdin")
	if err != nil {
		return nil, err
	}

	var words []string

	number := 0
	for line := range strings.Lines(string(content)) {
		number++

		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}

		if err := checkAddress(text); err != nil {
			message, remedy := exit.Explain(c.self(), err)
			return nil, exit.Usagef("%s, line %d: %s", source, number, message).Try("%s", remedy)
		}

		words = append(words, text)
	}

	if len(words) == 0 {
		return nil, exit.Usagef("%s contains no address", source).Try("write one address or range per line")
	}

	return words, nil
}

func checkAddress(text string) error {
	if inventory.IsRange(text) {
		_, err := inventory.ParseRange(text)
		return err
	}

	return inventory.CheckAddr(text)
}
