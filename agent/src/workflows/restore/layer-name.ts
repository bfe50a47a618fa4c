/** Names of the files that a restore makes above the first one of a disk. */
import { basename } from 'node:path';

/** @param index from 0, which stands on what is not of the backup */
export const layerName = (diskId: string, index: number): string => `${diskId}.${index}.qcow2`;

const ABOVE = /^[0-9a-f-]{36}\.[1-9]\d*\.qcow2$/;

/** Whether a file is called as one that a restore made above another one of its own. */
export const isRestoredLayer = (path: string): boolean => ABOVE.test(basename(path));
