/** What is chosen of a VM that a foreign file describes. */
import Type from 'typebox';

export const System = Type.String({
  minLength: 1,
  maxLength: 1000,
  description: 'which VM of an OVF descriptor: its id, or a name that only one has; default: the only one',
});
export const Configuration = Type.String({
  minLength: 1,
  maxLength: 1000,
  description: 'which configuration of a VM of an OVF descriptor; default: its default one',
});
/** Of an archive, or of a file of others that has some. */
export const State = Type.String({
  minLength: 1,
  maxLength: 255,
  description: 'number or name; default: the newest',
});
const MAX_NETWORKS = 256;

export const Networks = Type.Record(
  Type.String({ minLength: 1, maxLength: 1000 }),
  Type.String({ minLength: 1, maxLength: 255 }),
  {
    maxProperties: MAX_NETWORKS,
    description:
      'by a network or bridge that an adapter of the VM is connected to in the file the one of the node. Others stay when the node has ' +
      'them, and become its default network otherwise',
  },
);

/** Of several VMs of a file. */
export const All = Type.Boolean({
  description: 'every VM that the file describes, in one task: all of them or none. Not together with system',
});
