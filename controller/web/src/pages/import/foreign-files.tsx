import { useQuery } from '@tanstack/react-query';
import { Link } from 'react-router';
import { api, type BackupFile, list } from '../../api/client.ts';
import { Empty } from '../../parts/list.tsx';
import { Shown } from '../../parts/shown.tsx';
import { useWords } from '../../texts/index.tsx';

const TYPES = ['OVA', 'OVF', 'vma', 'virtnbdbackup', 'disk', 'xml'] as const;
const MOST = 100;

/** What lies in data pools and is of others. */
export function ForeignFiles() {
  const { texts, format } = useWords();
  const words = texts.import;
  const query = useQuery({
    queryKey: ['files', 'foreign'],
    queryFn: async () => {
      const found: BackupFile[] = [];
      for (const type of TYPES) {
        const filters = { type, limit: MOST };
        found.push(
          ...(await list<BackupFile>(api.GET('/api/library/', { params: { query: filters } }))).results,
        );
      }
      return found;
    },
  });
  return (
    <Shown query={query}>
      {files =>
        files.length === 0 ? (
          <Empty title={words.none} text={words.noneText} />
        ) : (
          <ul className="vk-list">
            {files.map(file => (
              <li key={file.id} className="vk-row">
                <Link to={`/import?file=${file.id}`} className="vk-name">
                  {file.filename}
                </Link>
                <span className="vk-small">
                  {[words.types[file.type], format.size(file.size), file.datapool.verbose_name].join(' · ')}
                </span>
              </li>
            ))}
          </ul>
        )
      }
    </Shown>
  );
}
