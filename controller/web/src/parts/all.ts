/** All data pools and all nodes, to choose from: asked for once, however many forms show them. */
import { useQuery } from '@tanstack/react-query';
import { api, list, type NodeRecord, type Pool } from '../api/client.ts';

/** The most that a list tells at once. */
const MOST = 1000;

export const useAllPools = () =>
  useQuery({
    queryKey: ['pools', 'all'],
    queryFn: () => list<Pool>(api.GET('/api/data-pools/', { params: { query: { limit: MOST } } })),
  });

export const useAllNodes = () =>
  useQuery({
    queryKey: ['nodes', 'all'],
    queryFn: () => list<NodeRecord>(api.GET('/api/nodes/', { params: { query: { limit: MOST } } })),
  });
