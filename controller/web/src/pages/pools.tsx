import { Label, Progress, ProgressMeasureLocation, ProgressSize } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { AT_ONCE, api, begun, keyFor, list, type Pool } from '../api/client.ts';
import { ActionMenu } from '../parts/actions.tsx';
import { StatusLabel } from '../parts/labels.tsx';
import { Empty, ListBar, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useToasts } from '../parts/toasts.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

export default function PoolsPage() {
  const { texts } = useWords();
  const state = useList();
  const query = useQuery({
    queryKey: ['pools', state.query],
    queryFn: () => list<Pool>(api.GET('/api/data-pools/', { params: { query: state.query } })),
    placeholderData: keepPreviousData,
  });
  return (
    <ViewPage title={texts.pools.title}>
      <ListBar list={state} count={query.data?.count} />
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={texts.pools.empty} text={texts.pools.emptyText} />
          ) : (
            <PoolTable pools={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

function PoolTable({ pools }: { pools: readonly Pool[] }) {
  const { texts, format } = useWords();
  const words = texts.pools;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{texts.common.status}</Th>
          <Th modifier="wrap">{words.type}</Th>
          <Th modifier="wrap">{words.used}</Th>
          <Th modifier="wrap">{words.files}</Th>
          <Th modifier="wrap">{words.disks}</Th>
          <Th modifier="wrap">{words.nodes}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {pools.map(pool => (
          <Tr key={pool.id}>
            <Td dataLabel={texts.common.name} className="vk-name">
              {pool.verbose_name}
              <div className="vk-small">{pool.path}</div>
            </Td>
            <Td dataLabel={texts.common.status}>
              <StatusLabel status={pool.status === 'FAILED' ? 'AWAY' : pool.status} />
            </Td>
            <Td dataLabel={words.type}>
              <span className="vk-row">
                {pool.type}
                {pool.readonly && <Label isCompact>{words.readonly}</Label>}
                {pool.outside && <Label isCompact>{words.outside}</Label>}
              </span>
            </Td>
            <Td dataLabel={words.used}>
              <Used pool={pool} />
            </Td>
            <Td dataLabel={words.files}>{format.number(pool.file_count)}</Td>
            <Td dataLabel={words.disks}>{format.number(pool.vdisk_count)}</Td>
            <Td dataLabel={words.nodes}>{pool.nodes_connected.map(node => node.verbose_name).join(', ')}</Td>
            <Td isActionCell>
              <PoolMenu pool={pool} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Used({ pool }: { pool: Pool }) {
  const { texts, format } = useWords();
  if (pool.size === 0) return texts.none;
  return (
    <Progress
      aria-label={`${texts.pools.used}: ${pool.verbose_name}`}
      size={ProgressSize.sm}
      measureLocation={ProgressMeasureLocation.outside}
      title={texts.pools.usedOf(format.size(pool.used_space), format.size(pool.size))}
      value={Math.round((pool.used_space / pool.size) * 100)}
      className="vk-progress"
    />
  );
}

function PoolMenu({ pool }: { pool: Pool }) {
  const { texts } = useWords();
  const asked = useAsked();
  const { attempt, started } = useToasts();
  const scan = async () =>
    started(
      await begun(
        api.POST('/api/data-pools/{id}/scan/', {
          params: { path: { id: pool.id }, query: AT_ONCE },
          body: { idempotency_key: keyFor(`/api/data-pools/${pool.id}/scan/`) },
        }),
      ),
    );
  const reason = pool.permissions?.includes('scan')
    ? undefined
    : (rightReason('pool.scan', asked) ?? texts.reasons.node);
  const action = { key: 'scan', label: texts.pools.scan, reason, act: () => attempt(scan) };
  return <ActionMenu of={pool.verbose_name} actions={[action]} />;
}
