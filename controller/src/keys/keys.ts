/** Where the controller keeps what nobody else may read: its authority's key, the key of logins, its own certificate. */
import { join } from 'node:path';
import { bytesIfPresent, readOrWriteOnce, writeDurably } from '@virtkeep/shared/durable-file';

/** The names are those of the files below the state directory. */
export type KeyName = 'jwt.key' | 'pki/ca.key' | 'pki/ca.crt' | 'pki/controller.pem';

/** In the order in which they are made. */
export const KEY_NAMES: readonly KeyName[] = ['jwt.key', 'pki/ca.key', 'pki/ca.crt', 'pki/controller.pem'];

export interface Keys {
  /** What is kept under a name; made when there is nothing. Whoever makes it at the same time gets the same. */
  readOrMake(name: KeyName, make: () => Promise<string | Buffer>): Promise<Buffer>;
  read(name: KeyName): Promise<Buffer | undefined>;
  /** Puts it in the place of what was there. */
  write(name: KeyName, content: string | Buffer): Promise<void>;
}

/** Of a controller that is alone: files of its state directory. @throws the file system's own errors, from each call */
export function keyFiles(stateDir: string): Keys {
  const pathOf = (name: KeyName) => join(stateDir, name);
  return {
    readOrMake: (name, make) => readOrWriteOnce(pathOf(name), make, modeOf(name)),
    read: name => bytesIfPresent(pathOf(name)),
    write: (name, content) => writeDurably(pathOf(name), content, modeOf(name)),
  };
}

const modeOf = (name: KeyName) => (name === 'pki/ca.crt' ? 0o644 : 0o600);
