/** Names of the files that virtnbdbackup writes into the directory of a backup; pure. */

/** A file with the data of one disk. */
export interface VirtnbdDataName {
  /** Target of the disk: "vda". */
  target: string;
  /** `full` and `copy` hold all of a disk, `inc` what changed since the checkpoint before, `diff` since the last one. */
  kind: 'full' | 'copy' | 'inc' | 'diff';
  /** Checkpoint of an `inc`, time of a `diff`; empty else. */
  ident: string;
}

const DATA =
  /^([a-z][a-z0-9]{0,15})\.(?:(full|copy)|(inc)\.(virtnbdbackup\.\d{1,6})|(diff)\.(\d{1,12}))\.data$/;
const MAIN = /^vmconfig\.(?:virtnbdbackup\.0|copy)\.xml$/;
const CONFIG = /^vmconfig\.(virtnbdbackup\.\d{1,6}|copy|\d{9,12})\.xml$/;
const DESCRIPTION = /^([a-z][a-z0-9]{0,15})\.(\d{9,12})\.qcow\.json$/;
const CHECKPOINT = /(?:^|\/)checkpoints\/virtnbdbackup\.\d{1,6}\.xml$/;

/** Undefined of every other file. */
export function virtnbdDataName(name: string): VirtnbdDataName | undefined {
  const [, target, base, inc, checkpoint, diff, time] = DATA.exec(name) ?? [];
  if (target === undefined) return undefined;
  return { target, kind: (base ?? inc ?? diff) as VirtnbdDataName['kind'], ident: checkpoint ?? time ?? '' };
}

const lastOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** The definition of the first restore point, which there is once: it stands for the whole directory. */
export const isVirtnbdMain = (path: string): boolean => MAIN.test(lastOf(path));

/** A definition of the VM at some restore point. */
export const isVirtnbdConfig = (path: string): boolean => CONFIG.test(lastOf(path));

/** The checkpoint of a definition, `copy`, or the second in which it was written; undefined of every other file. */
export const virtnbdConfigIdent = (path: string): string | undefined => CONFIG.exec(lastOf(path))?.[1];

/** The disk of a description and the second in which it was written; undefined of every other file. */
export function virtnbdDescription(name: string): { target: string; second: number } | undefined {
  const [, target, second] = DESCRIPTION.exec(name) ?? [];
  return target === undefined ? undefined : { target, second: Number(second) };
}

/** XML that belongs to such a backup and is none by itself. */
export const isVirtnbdPart = (path: string): boolean =>
  CHECKPOINT.test(path) || (isVirtnbdConfig(path) && !isVirtnbdMain(path));

/** The file is a part of such a backup's size: data and definitions. */
export const isVirtnbdFile = (name: string): boolean =>
  virtnbdDataName(name) !== undefined || isVirtnbdConfig(name);
