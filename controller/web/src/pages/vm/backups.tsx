/** The backup files of a VM, each with its restore points. */
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { Link } from 'react-router';
import { api, type BackupFile, type Domain, list } from '../../api/client.ts';
import { FileMarks, FileMenu } from '../../parts/file-actions.tsx';
import { StatusLabel } from '../../parts/labels.tsx';
import { Empty } from '../../parts/list.tsx';
import { fileReason } from '../../parts/reasons.ts';
import { Shown } from '../../parts/shown.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';

const MOST = 200;

export function VmBackups({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const filters = { domain: domain.id, limit: MOST };
  const query = useQuery({
    queryKey: ['files', filters],
    queryFn: () => list<BackupFile>(api.GET('/api/library/', { params: { query: filters } })),
  });
  return (
    <Shown query={query}>
      {({ results }) =>
        results.length === 0 ? (
          <Empty title={texts.vm.noBackups} text={texts.vm.noBackupsText}>
            <Link to={`/backup?vm=${domain.id}`}>{texts.vm.backup}</Link>
          </Empty>
        ) : (
          <FileTree files={results} />
        )
      }
    </Shown>
  );
}

function FileTree({ files }: { files: readonly BackupFile[] }) {
  const { texts, format } = useWords();
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const turn = (id: string) => {
    const next = new Set(closed);
    if (!next.delete(id)) next.add(id);
    setClosed(next);
  };
  const names = {
    points: texts.vm.restorePoints,
    file: texts.restore.file,
    status: texts.common.status,
    size: texts.common.size,
    pool: texts.common.pool,
  };
  return (
    <Table aria-label={texts.vm.backups} variant="compact" gridBreakPoint="grid-lg">
      <Thead>
        <Tr>
          <Th screenReaderText={names.points} />
          <Th modifier="wrap">{names.file}</Th>
          <Th modifier="wrap">{names.status}</Th>
          <Th modifier="wrap">{names.size}</Th>
          <Th modifier="wrap">{names.pool}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      {files.map((file, rowIndex) => {
        const isExpanded = !closed.has(file.id);
        return (
          <Tbody key={file.id} isExpanded={isExpanded}>
            <Tr isContentExpanded={isExpanded}>
              <Td
                expand={{
                  rowIndex,
                  isExpanded,
                  onToggle: () => turn(file.id),
                  expandId: `points-of-${rowIndex}`,
                }}
                aria-label={names.points}
              />
              <Td dataLabel={names.file} className="vk-name">
                {file.filename} <FileMarks file={file} />
              </Td>
              <Td dataLabel={names.status}>
                <StatusLabel status={file.status} />
              </Td>
              <Td dataLabel={names.size}>{format.size(file.size)}</Td>
              <Td dataLabel={names.pool}>{file.datapool.verbose_name}</Td>
              <Td isActionCell>
                <FileMenu file={file} />
              </Td>
            </Tr>
            <Tr isExpanded={isExpanded}>
              <Td />
              <Td colSpan={5}>
                <Points file={file} />
              </Td>
            </Tr>
          </Tbody>
        );
      })}
    </Table>
  );
}

function Points({ file }: { file: BackupFile }) {
  const { texts, format } = useWords();
  const reason = fileReason('restore', file, useAsked());
  return (
    <ul className="vk-list vk-points">
      {file.states.toReversed().map(({ number, created, memory, consistency }) => (
        <li key={number} className="vk-row">
          <span>
            {number}. {format.time(created)}
          </span>
          <span className="vk-small">
            {[format.age(created), consistency, memory ? texts.vm.withMemory : '']
              .filter(Boolean)
              .join(' · ')}
          </span>
          {reason === undefined && (
            <Link
              to={`/restore?file=${file.id}&state=${number}`}
              aria-label={`${texts.vm.restore}: ${file.filename}, ${number}`}
            >
              {texts.vm.restore}
            </Link>
          )}
        </li>
      ))}
    </ul>
  );
}
