/** The one cluster and the one resource pool: everything that the controller manages. */
import Type from 'typebox';
import { oneOf, Permissions, record, Uuid } from './common.ts';

const Named = Type.Object({ id: Uuid, verbose_name: Type.String() }, { additionalProperties: false });

const whole = {
  id: Uuid,
  verbose_name: Type.String(),
  description: Type.String(),
  status: oneOf(['ACTIVE', 'FAILED'] as const, { description: 'ACTIVE: at least one node is reachable' }),
  built_in: Type.Boolean(),
  nodes_count: Type.Integer(),
  domains_count: Type.Integer(),
  cpu_count: Type.Integer({ description: 'of all nodes' }),
  memory_count: Type.Integer({ description: 'MiB, of all nodes' }),
  permissions: Permissions,
};

export const ClusterSchema = record('Cluster', { ...whole, nodes: Type.Array(Named) });

export const ResourcePoolSchema = record('ResourcePool', { ...whole, cluster: Named });
