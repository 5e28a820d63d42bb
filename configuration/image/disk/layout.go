// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"os"
	"strings"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/filesystem/fat32"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/diskfs/go-diskfs/partition/mbr"

	"github.com/contiv/cluster/inventory"
)

const (
	sector = 512
	align  = 1 << 20
	// seedSize is the size of the partition of the seed. FAT32 has to have 65525 clusters.
	seedSize = 64 << 20
	// label is both the label of the file system and, in small letters, the name of the partition.
	label = "CIDATA"

	// maxEntries bounds the entries of a GPT.
	maxEntries = 1 << 10

	// Where an MBR has its entries, and where these have the type, the first sector and the number of sectors.
	mbrEntries, mbrEntry        = 446, 16
	mbrType, mbrStart, mbrCount = 4, 8, 12
	mbrMax                      = 1<<32 - 1
	protective                  = 0xee
)

var gptMagic = []byte("EFI PART")

// Seed has the files of cloud-init's data source NoCloud.
type Seed struct {
	MetaData      string // has to be there in a seed
	UserData      string
	NetworkConfig string // empty: no file
}

// layout is how an image and its seed are laid out on a disk.
type layout struct {
	table interface {
		Write(file backend.WritableFile, size int64) error
	} // nil: it is that of the image, as it is
	seed int64 // where the partition of the seed begins; 0: there is none
}

// plan returns the layout of an image with those first bytes, or an error if it cannot be installed on a disk of that
// size. head has edge bytes.
func plan(head []byte, size int64, seeded bool) (layout, error) {
	switch {
	case head[sector-2] != 0x55 || head[sector-1] != 0xaa:
		return layout{}, badImage("it does not begin with a boot sector")
	case bytes.HasPrefix(head[4096:], gptMagic):
		return layout{}, badImage("it is for disks with sectors of 4096 bytes")
	case bytes.HasPrefix(head[sector:], gptMagic):
		return planGPT(head, size, seeded)
	case seeded:
		return planMBR(head, size)
	}

	return layout{}, nil
}

// planGPT moves the backup to the end of the disk, and adds a partition for the seed.
func planGPT(head []byte, size int64, seeded bool) (layout, error) {
	var (
		h       = head[sector:]
		sectors = uint64(size) / sector //nolint:gosec // it is checked
		backup  = binary.LittleEndian.Uint64(h[32:])
		entries = binary.LittleEndian.Uint32(h[80:])
	)

	// The library takes the first three as given, and the others for sizes.
	switch {
	case binary.LittleEndian.Uint64(h[24:]) != 1 || binary.LittleEndian.Uint64(h[72:]) != 2 ||
		binary.LittleEndian.Uint32(h[84:]) != gpt.PartitionEntrySize:
		return layout{}, badImage("its GPT is not at the usual place, or not of the usual form")
	case entries == 0 || entries > maxEntries || entries%4 != 0:
		return layout{}, badImage("its GPT has %d entries", entries)
	case backup >= 1<<40:
		return layout{}, badImage("its GPT has an impossible backup")
	case backup >= sectors:
		return layout{}, tooSmall("the disk in the image", int64(backup+1)*sector, size)
	}

	table, err := gpt.Read(newEdges(onlyEnds{}, size, head).storage(), sector, sector)
	if err != nil {
		return layout{}, badImage("%w", err)
	}

	// The library knows protective entries up to 2 TiB, and no hybrid ones.
	table.ProtectiveMBR = false
	table.Resize(uint64(size)) //nolint:gosec // it is checked

	var used uint64
	indices := map[int]bool{}
	for _, p := range table.Partitions {
		used = max(used, p.End+1)
		indices[p.Index] = true
	}

	l := layout{table: gptTable{table}}

	if seeded {
		end := int64(table.LastDataSector()+1) * sector / align * align //nolint:gosec // it is checked
		if l.seed, err = room(used, end, size); err != nil {
			return layout{}, err
		}

		index := 1
		for indices[index] {
			index++
		}
		table.Partitions = append(table.Partitions, &gpt.Partition{
			Index: index, Type: gpt.MicrosoftBasicData, Name: strings.ToLower(label),
			Start: uint64(l.seed) / sector, Size: seedSize, //nolint:gosec // it is positive
		})
	} else if used > table.LastDataSector()+1 {
		return layout{}, tooSmall("the image", int64(used)*sector, size)
	}

	// Whatever the library refuses is refused before the disk is touched.
	if err := l.table.Write(newEdges(onlyEnds{}, size, head).storage(), size); err != nil {
		return layout{}, badImage("%w", err)
	}

	return l, nil
}

// planMBR adds a primary partition for the seed.
func planMBR(head []byte, size int64) (layout, error) {
	table, err := mbr.Read(newEdges(onlyEnds{}, size, head).storage(), sector, sector)
	if err != nil {
		return layout{}, badImage("%w", err)
	}

	var used uint64
	var free *mbr.Partition
	for _, p := range table.Partitions {
		switch {
		case p.Type != mbr.Empty:
			used = max(used, uint64(p.Start)+uint64(p.Size))
		case free == nil:
			free = p
		}
	}

	switch {
	case used == 0:
		return layout{}, badImage("it has no partition")
	case free == nil:
		return layout{}, badImage("its MBR has four partitions, and none is left for the seed")
	}

	seed, err := room(used, min(size, mbrMax*sector)/align*align, size)
	if err != nil {
		return layout{}, err
	}
	free.Type, free.Start, free.Size = mbr.Fat32LBA, uint32(seed/sector), seedSize/sector //nolint:gosec // see mbrMax

	return layout{table: table, seed: seed}, nil
}

// room returns where the partition of the seed begins that ends at a position, behind the used sectors.
func room(used uint64, end, size int64) (int64, error) {
	start := end - seedSize
	if used >= 1<<40 || int64(used)*sector > start {
		need := int64(min(used, 1<<40))*sector + seedSize + 2*align
		return 0, tooSmall("the image with the seed of cloud-init", need, size)
	}

	return start, nil
}

// gptTable writes a GPT, and the size of the disk into the protective entry of the MBR.
type gptTable struct{ *gpt.Table }

func (t gptTable) Write(file backend.WritableFile, size int64) error {
	b := make([]byte, sector)
	if _, err := file.ReadAt(b, 0); err != nil {
		return err
	}

	for at := mbrEntries; at < sector-2; at += mbrEntry {
		entry := b[at : at+mbrEntry]
		if entry[mbrType] == protective && binary.LittleEndian.Uint32(entry[mbrStart:]) == 1 {
			count := uint32(min(size/sector-1, mbrMax)) //nolint:gosec // it is bounded
			binary.LittleEndian.PutUint32(entry[mbrCount:], count)
		}
	}

	if _, err := file.WriteAt(b, 0); err != nil {
		return err
	}

	return t.Table.Write(file, size)
}

// write writes the table and the seed.
func (l layout) write(e *edges, seed Seed) error {
	if l.table != nil {
		if err := l.table.Write(e.storage(), e.size); err != nil {
			return err
		}
	}
	if l.seed == 0 {
		return nil
	}

	system, err := fat32.Create(e.storage(), seedSize, l.seed, sector, label, false)
	if err != nil {
		return err
	}

	for _, file := range []struct{ name, content string }{
		{"meta-data", seed.MetaData},
		{"user-data", cmp.Or(seed.UserData, noUserData)},
		{"network-config", seed.NetworkConfig},
	} {
		if file.content == "" {
			continue
		}
		if err := writeFile(system, file.name, file.content); err != nil {
			return err
		}
	}

	return nil
}

// noUserData is the content of user-data if there is none: cloud-init ignores a seed without the file.
const noUserData = "#cloud-config\n{}\n"

func writeFile(system *fat32.FileSystem, name, content string) error {
	f, err := system.OpenFile("/"+name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}

	_, err = f.Write([]byte(content))

	return errors.Join(err, f.Close())
}

func badImage(format string, args ...any) error {
	return inventory.Errorf(inventory.KindInvalid, "the image cannot be installed: "+format, args...).
		Do("use the image of a disk with a GPT or an MBR, for sectors of 512 bytes")
}
