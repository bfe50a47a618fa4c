/** The one cluster and the one resource pool: everything that the controller manages. */
import Type from 'typebox';
import { CLUSTER, RESOURCE_POOL } from '../../services/nodes/whole.ts';
import { STORY } from '../document/story.ts';
import { described, integer, named, oneOf, Permissions, record, text, truth, Uuid } from './common.ts';

const whole = {
  id: described(Uuid, 'always the same'),
  verbose_name: text('its name'),
  description: text('what it is'),
  status: oneOf(['ACTIVE', 'FAILED'] as const, { description: 'ACTIVE: at least one node is reachable' }),
  built_in: truth('true: it can be neither changed nor removed'),
  nodes_count: integer('number of nodes'),
  domains_count: integer('number of VMs'),
  cpu_count: integer('of all nodes'),
  memory_count: integer('MiB, of all nodes'),
  permissions: Permissions,
};

const example = {
  description: 'Built in: it has everything',
  status: 'ACTIVE' as const,
  built_in: true,
  nodes_count: 1,
  domains_count: 12,
  cpu_count: 16,
  memory_count: 65_536,
  permissions: [],
};

export const ClusterSchema = record(
  'Cluster',
  {
    description: 'The one cluster: all nodes',
    example: { ...CLUSTER, ...example, nodes: [{ id: STORY.node, verbose_name: 'n1' }] },
  },
  { ...whole, nodes: Type.Array(named('a node'), { description: 'its nodes' }) },
);

export const ResourcePoolSchema = record(
  'ResourcePool',
  {
    description: 'The one resource pool: what all nodes have',
    example: {
      ...RESOURCE_POOL,
      ...example,
      cluster: CLUSTER,
    },
  },
  { ...whole, cluster: named('the one cluster') },
);
