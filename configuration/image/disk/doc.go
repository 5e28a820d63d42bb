// SPDX-License-Identifier: Apache-2.0

// Package disk writes an image to a disk, so that the machine boots from it.
//
// A disk with half an image must not boot. So Write first overwrites the beginning and the end of the disk with zeros,
// which has neither a boot loader nor a partition table then. The image's own first and last MiB stay in memory until
// everything else is on the disk and the digest has been compared. The first sectors come last.
//
// The disk is usually larger than the image. The backup of a GPT moves to the end of the disk, and a partition with the
// seed of cloud-init comes right before that, so that the system can extend its last partition up to it. It has a FAT
// file system with the label CIDATA, by which cloud-init finds it. An image must not bring another one of this label:
// which of the two cloud-init reads is not defined.
package disk
