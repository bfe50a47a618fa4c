/** Every bound of what is read of an appliance, in one place: who made it may mean harm, and none of them keeps out a real one. */
import { GiB, KiB, MiB } from '@virtkeep/shared/units';

/** As much as is read as XML. The largest public descriptor has a hundredth of it. */
export const MAX_DESCRIPTOR_BYTES = 8 * MiB;
/** Two lines of every member, with names of 255 bytes. */
export const MAX_MANIFEST_BYTES = 4 * MiB;
/** A signature and a chain of certificates. */
export const MAX_CERTIFICATE_BYTES = 256 * KiB;
/** A disk of 8 TiB in chunks of 2 GiB; real appliances have a few. Each costs an open file where they lie in a directory. */
export const MAX_MEMBERS = 4_096;
/** Texts of a packed appliance that are kept while it is listed, so that they need no second pass. */
export const MAX_KEPT_BYTES = 16 * MiB;

const SMALL_STREAM_BYTES = 256 * GiB;
const STREAM_RATIO = 100;
/**
 * Most bytes that are unpacked of a compressed file. Disks in appliances are compressed already, so a real one hardly grows; zeros shrink
 * to a thousandth, and a bomb is made of them. What it costs to find out: ten minutes of one core, no memory, no space.
 */
export const mostUnpacked = (packedBytes: number): number => SMALL_STREAM_BYTES + STREAM_RATIO * packedBytes;

/** Most bytes of one disk's image: formats add little to what the guest sees, and descriptors round. */
export const mostOfDisk = (capacityBytes: number): number => 2 * capacityBytes + GiB;

/** Most bytes of a packed image of a drive: those of a DVD, twice. */
export const MAX_DRIVE_IMAGE_BYTES = 16 * GiB;

/** `xz -9` needs 65 MiB to unpack; more is asked for only by hand. */
export const XZ_MEMORY_BYTES = 256 * MiB;
/** Its address space: what it may use, the program, its libraries. */
export const XZ_ADDRESS_BYTES = 512 * MiB;

/** Tables of an image that are read to see whether it is whole: of 64 TiB in the usual clusters, of any format. */
export const MAX_TABLES = 2 ** 21;

/** What VHDX and VMware's formats end at. */
export const MAX_VIRTUAL_BYTES = 64 * KiB * GiB;
