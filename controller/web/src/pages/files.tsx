import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { api, type BackupFile, list, type Pool } from '../api/client.ts';
import { FileMarks, FileMenu } from '../parts/file-actions.tsx';
import { StatusLabel } from '../parts/labels.tsx';
import { Empty, Filter, ListBar, type ListState, OrderedTh, useList } from '../parts/list.tsx';
import { ViewPage } from '../parts/page.tsx';
import { Shown } from '../parts/shown.tsx';
import { useWords } from '../texts/index.tsx';

const STATUSES = ['ACTIVE', 'CREATING', 'UPDATING', 'FAILED', 'DELETING', 'MISSING', 'DAMAGED'] as const;
const ORDERS = ['-created', 'filename', 'status', 'size'];

export default function FilesPage() {
  const { texts } = useWords();
  const words = texts.files;
  const state = useList(['status', 'datapool'], ORDERS);
  const status = STATUSES.find(value => value === state.filter('status'));
  const datapool = state.filter('datapool');
  const filters = { ...state.query, ...(status ? { status } : {}), ...(datapool ? { datapool } : {}) };
  const query = useQuery({
    queryKey: ['files', filters],
    queryFn: () => list<BackupFile>(api.GET('/api/library/', { params: { query: filters } })),
    placeholderData: keepPreviousData,
  });
  const pools = useQuery({
    queryKey: ['pools', 'names'],
    queryFn: () => list<Pool>(api.GET('/api/data-pools/', { params: { query: { limit: 1000 } } })),
  });
  const poolNames = Object.fromEntries(
    (pools.data?.results ?? []).map(({ id, verbose_name }) => [id, verbose_name]),
  );
  const statuses = Object.fromEntries(STATUSES.map(value => [value, texts.status[value] ?? value]));
  return (
    <ViewPage title={words.title}>
      <ListBar list={state} count={query.data?.count}>
        <Filter list={state} name="status" label={texts.common.status} options={statuses} />
        <Filter list={state} name="datapool" label={texts.common.pool} options={poolNames} />
      </ListBar>
      <Shown query={query}>
        {({ results }) =>
          results.length === 0 ? (
            <Empty list={state} title={words.empty} text={words.emptyText} />
          ) : (
            <FileTable list={state} files={results} />
          )
        }
      </Shown>
    </ViewPage>
  );
}

function FileTable({ list, files }: { list: ListState; files: readonly BackupFile[] }) {
  const { texts, format } = useWords();
  const words = texts.files;
  return (
    <Table aria-label={words.title} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <OrderedTh list={list} by="filename">
            {texts.restore.file}
          </OrderedTh>
          <Th modifier="wrap">{words.machine}</Th>
          <OrderedTh list={list} by="status">
            {texts.common.status}
          </OrderedTh>
          <Th modifier="wrap">{words.restorePoints}</Th>
          <OrderedTh list={list} by="size">
            {texts.common.size}
          </OrderedTh>
          <Th modifier="wrap">{texts.common.pool}</Th>
          <OrderedTh list={list} by="created">
            {texts.common.created}
          </OrderedTh>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {files.map(file => (
          <Tr key={file.id}>
            <Td dataLabel={texts.restore.file} className="vk-name">
              {file.filename} <FileMarks file={file} />
              {file.description !== '' && <div className="vk-small">{file.description}</div>}
              {file.damage !== '' && (
                <div className="vk-small">
                  {words.damage}: {file.damage}
                </div>
              )}
            </Td>
            <Td dataLabel={words.machine} className="vk-name">
              {file.domain ? (
                <Link to={`/vms/${file.domain.id}/backups`}>{file.domain.verbose_name}</Link>
              ) : (
                file.verbose_name
              )}
            </Td>
            <Td dataLabel={texts.common.status}>
              <StatusLabel status={file.status} />
            </Td>
            <Td dataLabel={words.restorePoints}>{format.number(file.states.length)}</Td>
            <Td dataLabel={texts.common.size}>{format.size(file.size)}</Td>
            <Td dataLabel={texts.common.pool}>{file.datapool.verbose_name}</Td>
            <Td dataLabel={texts.common.created}>{format.time(file.created)}</Td>
            <Td isActionCell>
              <FileMenu file={file} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
