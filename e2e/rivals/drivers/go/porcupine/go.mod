module lockkeeper/porcupine

go 1.26.7

require github.com/anishathalye/porcupine v1.3.1
