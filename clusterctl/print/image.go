// SPDX-License-Identifier: Apache-2.0

package print

import (
	"fmt"
	"strings"

	"github.com/contiv/cluster/management/api"
)

// ImageColumns are the columns of a table of images.
var ImageColumns = ColumnsOf(Cells[api.Image]{
	"size": func(_ Paint, i *api.Image) string { return Size(imageSize(i)) },
	"min disk": func(_ Paint, i *api.Image) string {
		if i.MinDisk == 0 {
			return ""
		}
		return Size(i.MinDisk)
	},
	"on": func(_ Paint, i *api.Image) string { return imagePlaces(i) },
}, "name", "kind", "arch", "boot", "size", "state", "on", "created", "min disk,wide", "by=actor,wide",
	"description,wide")

func imageSize(i *api.Image) (n int64) {
	for _, f := range i.Files {
		n += f.Size
	}
	return n
}

// imagePlaces names the hosts of the instances that have all of an image.
func imagePlaces(i *api.Image) string {
	count := map[string]int{}

	var hosts []string
	for _, f := range i.Files {
		for _, p := range f.Instances {
			if count[p.ID]++; count[p.ID] == len(i.Files) {
				hosts = append(hosts, p.Node)
			}
		}
	}

	return List(hosts)
}

// Size returns bytes in the largest unit that keeps three digits.
func Size(n int64) string {
	const units = "KMGTP"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}

	value, unit := float64(n)/(1<<10), 0
	for value >= 1000 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}

	return fmt.Sprintf("%.3g %ciB", value, units[unit])
}

// Image prints an image with its files.
func (p *Printer) Image(i api.Image) {
	minDisk := "not known"
	if i.MinDisk > 0 {
		minDisk = fmt.Sprintf("%s (%d bytes)", Size(i.MinDisk), i.MinDisk)
	}

	p.Fields([]Field{
		{"Image", Line(i.Name)},
		{"Kind", Line(string(i.Kind))},
		{"Architecture", Line(i.Arch)},
		{"Boot mode", Line(i.Boot)},
		{"Minimum disk", minDisk},
		{"Description", Line(i.Description)},
		{"State", Line(string(i.State))},
		{"Created", Time(i.Created)},
		{"By", Line(i.Actor)},
	})

	for _, f := range i.Files {
		places := make([]string, len(f.Instances))
		for n, at := range f.Instances {
			places[n] = at.Node + " (" + at.ID + ")"
		}

		on := strings.Join(places, ", ")
		if on == "" {
			on = fmt.Sprintf("no instance; %d bytes have come to the one that was asked", f.Received)
		}

		size := fmt.Sprintf("%s (%d bytes)", Size(f.Size), f.Size)
		if f.Received > 0 && len(f.Instances) > 0 {
			size += fmt.Sprintf(", %d on the instance that was asked", f.Received)
		}

		disk := ""
		if f.VirtualSize > 0 {
			disk = fmt.Sprintf("%s (%d bytes)", Size(f.VirtualSize), f.VirtualSize)
		}

		p.Fields([]Field{
			{"File", Line(f.Role)},
			{"Digest", Line(f.Digest)},
			{"Size", size},
			{"Format", Line(strings.TrimSpace(f.Format + " " + f.Compression))},
			{"Disk in it", disk},
			{"On", Line(on)},
		})
	}
}

// ImageCheck prints what a check of an image has found.
func (p *Printer) ImageCheck(c api.ImageCheck) {
	p.Fields([]Field{{"Image", Line(c.Image)}, {"Instance", Line(c.Node)}})
	p.section("Files", []string{"FILE", "RESULT", "DIGEST"}, len(c.Files), func(i int) []string {
		f := c.Files[i]
		return []string{f.Role, f.Result, f.Digest}
	})
}
