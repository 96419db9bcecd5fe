# Sourced behind settings.sh: DAMON's files, and every setting that the daemon may write where it
# has to do with DAMON.
damon=/sys/kernel/mm/damon/admin/kdamonds
stat=/sys/module/damon_stat/parameters/enabled
all() { settings; echo "kdamonds $(cat $damon/nr_kdamonds)"; [ ! -e $stat ] || echo "stat $(cat $stat)"; }
same() { [ "$(all)" = "$original" ] || fail "$1: $(all)"; }
