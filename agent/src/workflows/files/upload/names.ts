/** Which files may be uploaded into `backups/`, and how they may be named. */
import { backupTypeOf } from '../../../pools/index.ts';

/**
 * Endings of what an OVF descriptor needs beside it, in lower case. They are no backups by themselves, so they lie in a directory of
 * their own. What is a backup file by its name (`backupTypeOf`) may lie in `backups/` itself, too.
 */
const BESIDE = ['.iso', '.mf', '.cert', '.gz'];
/** A piece of an image that was cut into pieces: `disk.vmdk.000000003`. */
const PIECE = /\.(?:vmdk|vhd|vhdx|vdi|qcow2|img|raw)(?:\.gz)?\.[0-9]{9}$/;

/** Every file system takes it, with room for the hidden names beside it. */
const MAX_NAME_BYTES = 200;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
const UNWANTED = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\ufffd\\]/;

/**
 * Why a file of this name cannot be uploaded; undefined when it can.
 * @param filename relative to `backups/`: a name, or a directory and a name
 */
export function uploadNameFault(filename: string): string | undefined {
  const steps = filename.split('/');
  if (steps.length > 2) return 'it lies deeper than in a directory of backups/';
  const fault = steps.map(stepFault).find(found => found !== undefined);
  if (fault !== undefined) return fault;
  const name = steps.at(-1)!;
  if (backupTypeOf(name) !== undefined) return undefined;
  if (!isBeside(name.toLowerCase())) return 'its ending is none of a backup, an appliance or a disk image';
  return steps.length === 2 ? undefined : 'it is no backup by itself: upload it into a directory';
}

const isBeside = (name: string): boolean => BESIDE.some(ending => name.endsWith(ending)) || PIECE.test(name);

function stepFault(step: string): string | undefined {
  if (step === '') return 'a part of it is empty';
  if (step.startsWith('.') || step.startsWith('-')) return 'a part of it begins with a dot or a hyphen';
  if (Buffer.byteLength(step) > MAX_NAME_BYTES) return `a part of it is longer than ${MAX_NAME_BYTES} bytes`;
  if (UNWANTED.test(step)) return 'it holds a control character, a backslash or what is no UTF-8';
  return step.isWellFormed() ? undefined : 'it is no UTF-8';
}
